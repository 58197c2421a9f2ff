//! Both labs on real guests, driven through public HTTP and WebSocket only.
//!
//! `./lab test` runs these one at a time and first: a guest under emulation takes a whole core.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![expect(clippy::print_stdout, reason = "the phases of a real start are worth reading in the log")]

use std::{path::Path, time::Duration};

use lab_catalog::Catalog;
use lab_e2e::{Operator, Student, Terminal};
use lab_stack::{Options, Stack};

/// A start under emulation on a busy machine.
const READY: Duration = Duration::from_secs(420);
const REBOOT: Duration = Duration::from_secs(300);
const GONE: Duration = Duration::from_secs(120);

fn labs() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../labs"))
}

/// Types what a student would: a reboot is waited for, everything else runs to its end.
async fn solve(terminal: &mut Terminal, script: &str) {
    let is_reboot = |line: &str| matches!(line.trim(), "reboot" | "systemctl reboot");
    if script.lines().any(is_reboot) {
        let before: String = script.lines().take_while(|l| !is_reboot(l)).map(|l| format!("{l}\n")).collect();
        terminal.run(&before).await.unwrap();
        terminal.reboot(REBOOT).await.unwrap();
    } else {
        terminal.run(script).await.unwrap();
    }
}

async fn whole_lab(lab: &str) {
    let catalog = Catalog::load(labs()).unwrap();
    let (_, content) = catalog.labs.iter().find(|(id, _)| id.as_str() == lab).expect("the lab loads");
    let stack = Stack::start(Options::qemu()).await.unwrap();
    let student = Student::login(&stack.web_url(), "student", "student").await.unwrap();
    let id = student.start(lab).await.unwrap();
    let ready = student.wait_for(&id, "ready", READY).await.unwrap();
    println!("{lab}: phases {}", ready["timeline"]);
    println!("{lab}: disk {}", ready["machines"][0]);

    let checked: Vec<u64> =
        content.steps.iter().filter(|s| s.check.is_some()).map(|s| u64::from(s.n)).collect();
    assert!(checked.len() >= 4, "a lab has at least four steps that are checked");
    for step in &checked {
        let check = student.check(&id, *step).await.unwrap();
        assert_eq!(check["outcome"], "failed", "step {step} before any work: {check}");
    }

    let mut terminal = student.terminal(&id).await.unwrap();
    terminal.prompt(Duration::from_secs(60)).await.unwrap();
    assert!(terminal.run("id -u; systemctl is-system-running; uname -r").await.unwrap().contains("\n0\r"));
    for step in &content.steps {
        let script = step.solve.as_ref().expect("every step has a solution");
        solve(&mut terminal, script).await;
        if step.check.is_some() {
            let check = student.check(&id, u64::from(step.n)).await.unwrap();
            assert_eq!(
                check["outcome"],
                "passed",
                "step {} after its solution: {check}\n{}",
                step.n,
                terminal.screen()
            );
        }
    }
    for step in &checked {
        let check = student.check(&id, *step).await.unwrap();
        assert_eq!(check["outcome"], "passed", "step {step} at the end: {check}");
    }

    student.end(&id).await.unwrap();
    assert_eq!(terminal.wait_closed(Duration::from_secs(60)).await.unwrap(), (4000, "user".to_owned()));
    let ended = student.wait_for(&id, "ended", GONE).await.unwrap();
    assert_eq!(ended["reason"], "user");
    let operator = Operator::new(&stack.kubeconfig("admin"), stack.namespace()).await.unwrap();
    assert_eq!(operator.objects(None).await.unwrap(), Vec::<String>::new(), "ended means gone");
    assert_eq!(stack.guests(), Vec::<i32>::new(), "no qemu process is left");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_repair_is_solved_on_a_real_machine_and_nothing_is_left() {
    whole_lab("systemd-repair").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_rescue_is_solved_on_a_real_machine_and_nothing_is_left() {
    whole_lab("disk-rescue").await;
}
