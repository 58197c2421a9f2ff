//! One lab in real Chromium, driven by the page's own script, on a real guest.

use std::{path::Path, process::Stdio, time::Duration};

use lab_catalog::Catalog;
use lab_e2e::Operator;
use lab_stack::{Options, Stack};
use serde_json::{Value, json};
use tokio::process::Command;

/// A whole lab with a reboot under emulation.
const LIMIT: Duration = Duration::from_secs(1500);

/// What to type, in the form that the page's script reads.
fn solutions(lab: &lab_catalog::Lab) -> Value {
    let line = |l: &str| match l.trim() {
        // The old shell prints one more prompt; only the next boot logs in by itself.
        "reboot" | "systemctl reboot" => json!({"send": l, "expect": "automatic login", "timeout_s": 300}),
        _ => json!(l),
    };
    let steps = lab.steps.iter().map(|step| {
        let lines =
            step.solve.iter().flat_map(|s| s.lines()).filter(|l| !l.is_empty() && !l.starts_with('#'));
        json!({"step": step.n, "lines": lines.map(line).collect::<Vec<_>>()})
    });
    steps.collect()
}

/// Where pictures of the run are to be put, if anywhere.
#[expect(clippy::disallowed_methods, reason = "a test has no command line of its own")]
fn screenshots() -> Option<String> {
    std::env::var("LAB_SCREENSHOTS").ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lab_is_solved_in_a_real_browser() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let catalog = Catalog::load(&root.join("labs")).unwrap();
    let lab = &catalog.labs[&"disk-rescue".parse().unwrap()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("solutions.json");
    std::fs::write(&file, solutions(lab).to_string()).unwrap();

    let stack = Stack::start(Options::qemu()).await.unwrap();
    let mut run = Command::new("node");
    run.arg(root.join("web/e2e/run.mjs"));
    run.args(["--base", &stack.web_url(), "--lab", lab.id.as_str(), "--solutions"]).arg(&file);
    if let Some(folder) = screenshots() {
        run.arg("--screenshots").arg(folder);
    }
    let run = run.stdin(Stdio::null()).kill_on_drop(true).status();
    let status = tokio::time::timeout(LIMIT, run).await.expect("the browser is done in time").unwrap();
    assert!(status.success(), "the browser run failed; its lines above say where");
    let operator = Operator::new(&stack.kubeconfig("admin"), stack.namespace()).await.unwrap();
    operator.wait_clean(None, Duration::from_secs(120)).await.unwrap();
    assert_eq!(stack.guests(), Vec::<i32>::new());
    stack.stop().await;
}
