//! The played guest speaks the agent's and the console's language exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lab_machine::sim::{Rules, Sim, Times};
use lab_machine::{Attached, Driver, End, Machine, RootDisk, Run, Seed, Spec};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

const TOKEN: &str = "0123abcd";

struct Bench {
    driver: Driver,
    sim: Sim,
    _state: tempfile::TempDir,
}

fn sim_in(state: &std::path::Path) -> Sim {
    let times = Times {
        boot: Duration::from_millis(30),
        agent: Duration::from_millis(10),
        prepare: Duration::from_millis(30),
    };
    Sim::new(state, times, TaskTracker::new()).unwrap()
}

fn bench() -> Bench {
    let state = tempfile::tempdir().unwrap();
    let sim = sim_in(state.path());
    Bench { driver: Driver::Sim(sim.clone()), sim, _state: state }
}

fn spec(uid: &str, lab: &str) -> Spec {
    let machine =
        json!({"token": TOKEN, "session": "s", "machine": "main", "lab": lab, "prepare_timeout_s": 1});
    Spec {
        uid: uid.into(),
        namespace: "ttlab".into(),
        name: format!("lab-{uid}"),
        labels: BTreeMap::from([("ttlab.io/lab".into(), lab.into())]),
        cpus: 1,
        memory_mib: 64,
        root: RootDisk::None,
        empty_disks: Vec::new(),
        seed: Seed {
            user_data: format!(
                "#cloud-config\nwrite_files:\n  - path: /opt/ttlab/machine.json\n    content: '{machine}'\n"
            ),
            ..Seed::default()
        },
    }
}

async fn set(bench: &Bench, rules: Value) {
    bench.sim.set_rules(serde_json::from_value::<Rules>(rules).unwrap()).await.unwrap();
}

async fn running(machine: &Machine) {
    let mut status = machine.watch();
    tokio::time::timeout(Duration::from_secs(10), status.wait_for(|s| s.run == Run::Running))
        .await
        .unwrap()
        .unwrap();
}

fn url(machine: &Machine, path: &str) -> String {
    format!("http://{}:8899{path}", machine.address())
}

fn client() -> reqwest::Client {
    // The client wants a TLS provider even where it speaks plain HTTP; a second call finds the first one's.
    let _first_or_not = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// Waits for the agent to be in a phase, by its long poll; refused connections mean that it is not up yet.
async fn phase(machine: &Machine, wanted: &str) -> Value {
    let client = client();
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let sent = client.get(url(machine, "/ready?wait=1&phase=none")).bearer_auth(TOKEN).send().await;
        if let Ok(answer) = sent {
            let report: Value = answer.json().await.unwrap();
            if report["phase"] == wanted {
                return report;
            }
            let known = report["phase"].as_str().unwrap().to_owned();
            let path = format!("/ready?wait=5&phase={known}");
            let _changed = client.get(url(machine, &path)).bearer_auth(TOKEN).send().await;
        }
        assert!(tokio::time::Instant::now() < until, "the agent never said {wanted}");
        tokio::task::yield_now().await;
    }
}

async fn exec(machine: &Machine, call: Value) -> reqwest::Response {
    client().post(url(machine, "/exec")).bearer_auth(TOKEN).json(&call).send().await.unwrap()
}

async fn read_until(console: &mut Attached, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let bytes = tokio::time::timeout(Duration::from_secs(10), console.recv()).await;
        let bytes = bytes.unwrap_or_else(|_| panic!("no {wanted:?} in {seen:?}"));
        seen.push_str(
            std::str::from_utf8(&bytes.unwrap_or_else(|| panic!("end before {wanted:?}: {seen:?}"))).unwrap(),
        );
    }
    seen
}

async fn type_line(console: &Attached, line: &str) {
    console.send(Bytes::from(format!("{line}\r"))).await.unwrap();
}

#[tokio::test]
async fn machine_runs_becomes_ready_and_is_removed() {
    let bench = bench();
    let machine = bench.driver.start(spec("u1", "a")).await.unwrap();
    assert_eq!(machine.status().run, Run::Starting);
    assert!(client().get(url(&machine, "/healthz")).send().await.is_err(), "nothing listens before the boot");
    running(&machine).await;
    let report = phase(&machine, "ready").await;
    assert_eq!(report, json!({"phase": "ready", "cause": null, "exit_code": null, "log_tail": ""}));
    let health = client().get(url(&machine, "/healthz")).send().await.unwrap();
    assert_eq!((health.status().as_u16(), health.text().await.unwrap().trim()), (200, "ok"));
    for (path, token) in [("/ready", "wrong"), ("/nothing", "")] {
        let refused = client().get(url(&machine, path)).bearer_auth(token).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 401);
    }
    bench.driver.remove("u1").await.unwrap();
    assert_eq!(machine.status().run, Run::Ended(End::Killed));
    assert!(bench.driver.get("u1").is_none());
    assert!(client().get(url(&machine, "/healthz")).send().await.is_err());
}

#[tokio::test]
async fn check_fails_before_the_word_was_typed_and_passes_after() {
    let bench = bench();
    let machine = bench.driver.start(spec("u2", "a")).await.unwrap();
    phase(&machine, "ready").await;
    let call = |id: &str| json!({"id": id, "script": "# sim:needs unit-repaired", "timeout_ms": 1000});
    let before: Value = exec(&machine, call("c1")).await.json().await.unwrap();
    assert_eq!((before["exit_code"].as_i64(), before["timed_out"].as_bool()), (Some(1), Some(false)));
    let mut console = machine.console().attach().unwrap();
    type_line(&console, "echo unit-repaired").await;
    read_until(&mut console, "\nunit-repaired\r\n").await;
    let repeated: Value = exec(&machine, call("c1")).await.json().await.unwrap();
    assert_eq!(repeated, before, "a repeated id gets the first answer");
    let after: Value = exec(&machine, call("c2")).await.json().await.unwrap();
    assert_eq!(after["exit_code"], 0);
}

#[tokio::test]
async fn second_exec_waits_inside_its_limit_and_is_then_refused_as_busy() {
    let bench = bench();
    set(&bench, json!({"defaults": {"exec": [{"contains": "slow", "delay_ms": 600, "output": "late"}]}}))
        .await;
    let machine = bench.driver.start(spec("u3", "a")).await.unwrap();
    phase(&machine, "ready").await;
    let slow = exec(&machine, json!({"id": "1", "script": "slow", "timeout_ms": 5000}));
    let busy = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        exec(&machine, json!({"id": "2", "script": "x", "timeout_ms": 50})).await
    };
    let (slow, busy) = tokio::join!(slow, busy);
    assert_eq!(busy.status().as_u16(), 409);
    assert_eq!(busy.json::<Value>().await.unwrap(), json!({"error": "busy"}));
    assert_eq!(slow.json::<Value>().await.unwrap()["output"], "late");
    let late: Value =
        exec(&machine, json!({"id": "3", "script": "slow", "timeout_ms": 50})).await.json().await.unwrap();
    assert_eq!(late["timed_out"], true);
}

#[tokio::test]
async fn every_end_of_the_prepare_script_is_told() {
    let cases = [
        (json!({"exit": {"code": 3, "log": "no such unit\n"}}), "failed", Some("exit_status")),
        (json!({"exit": {"code": 1, "log": "end\n", "megabytes": 3}}), "failed", Some("exit_status")),
        (json!({"exit": {"code": 0, "log": "fine\n"}}), "ready", None),
        (json!({"hangs": {"log": "waiting\n"}}), "failed", Some("timeout")),
        (json!("signal"), "failed", Some("signal")),
        (json!("cloud_init"), "failed", Some("cloud_init")),
        (json!("stuck"), "preparing", None),
    ];
    let bench = bench();
    for (index, (prepare, wanted, cause)) in cases.into_iter().enumerate() {
        set(&bench, json!({"rules": [{"lab": "p", "behaviour": {"prepare": prepare}}]})).await;
        let machine = bench.driver.start(spec(&format!("p{index}"), "p")).await.unwrap();
        let report = phase(&machine, wanted).await;
        assert_eq!(report["cause"].as_str(), cause, "case {index}");
        assert!(report["log_tail"].as_str().unwrap().len() <= 4096);
    }
}

#[tokio::test]
async fn console_answers_and_its_commands_act() {
    let bench = bench();
    let machine = bench.driver.start(spec("u4", "a")).await.unwrap();
    phase(&machine, "ready").await;
    let mut console = machine.console().attach().unwrap();
    type_line(&console, "").await;
    read_until(&mut console, "root@lab-u4:~# ").await;
    type_line(&console, "stty size").await;
    read_until(&mut console, "\n24 80\r\n").await;
    let resize =
        client().post(url(&machine, "/tty")).bearer_auth(TOKEN).json(&json!({"rows": 40, "cols": 120}));
    assert_eq!(resize.send().await.unwrap().status().as_u16(), 204);
    type_line(&console, "stty size").await;
    read_until(&mut console, "\n40 120\r\n").await;
    type_line(&console, "flood 200000").await;
    let flood = read_until(&mut console, "0123456789").await.len();
    let mut seen = flood;
    while seen < 200_000 {
        seen += console.recv().await.unwrap().len();
    }
    type_line(&console, "reboot").await;
    read_until(&mut console, "Restarting system").await;
    read_until(&mut console, "root@lab-u4:~# ").await;
    assert_eq!(machine.status(), lab_machine::Status { run: Run::Running, resets: 1 });
    assert_eq!(phase(&machine, "ready").await["phase"], "ready", "a reboot does not send it back");
    type_line(&console, "poweroff").await;
    while console.recv().await.is_some() {}
    assert_eq!(machine.ended().await, End::Shutdown);
    assert!(machine.console().attach().is_err());
}

#[tokio::test]
async fn machine_dies_as_the_rules_say() {
    let bench = bench();
    set(
        &bench,
        json!({"rules": [
            {"lab": "boot", "behaviour": {"fails_to_boot": true}},
            {"lab": "later", "behaviour": {"dies_after_ms": 20, "dies_as": "panic"}},
            {"lab": "deaf", "behaviour": {"ignores_power_button": true}},
        ]}),
    )
    .await;
    let boot = bench.driver.start(spec("d1", "boot")).await.unwrap();
    assert_eq!(boot.ended().await, End::Crashed);
    let later = bench.driver.start(spec("d2", "later")).await.unwrap();
    assert_eq!(later.ended().await, End::Panicked);
    let deaf = bench.driver.start(spec("d3", "deaf")).await.unwrap();
    running(&deaf).await;
    deaf.power_down(Duration::from_millis(50)).await;
    assert_eq!(deaf.ended().await, End::Killed);
    let good = bench.driver.start(spec("d4", "a")).await.unwrap();
    running(&good).await;
    good.power_down(Duration::from_secs(5)).await;
    assert_eq!(good.ended().await, End::Shutdown);
}

#[tokio::test]
async fn agent_faults_are_what_a_hostile_guest_would_do() {
    let bench = bench();
    set(
        &bench,
        json!({"rules": [
            {"lab": "absent", "behaviour": {"agent": "absent"}},
            {"lab": "silent", "behaviour": {"agent": "silent"}},
            {"lab": "redirect", "behaviour": {"agent": "redirect"}},
            {"lab": "garbage", "behaviour": {"agent": "garbage"}},
        ]}),
    )
    .await;
    let mut machines = BTreeMap::new();
    for lab in ["absent", "silent", "redirect", "garbage"] {
        let machine = bench.driver.start(spec(lab, lab)).await.unwrap();
        running(&machine).await;
        machines.insert(lab, machine);
    }
    tokio::time::sleep(Duration::from_millis(60)).await;
    let impatient =
        |lab: &str| client().get(url(&machines[lab], "/healthz")).timeout(Duration::from_millis(200)).send();
    assert!(impatient("absent").await.unwrap_err().is_connect());
    assert!(impatient("silent").await.unwrap_err().is_timeout());
    assert_eq!(impatient("redirect").await.unwrap().status().as_u16(), 302);
    assert!(impatient("garbage").await.is_err());
}

#[tokio::test]
async fn restarted_process_plays_on() {
    let state = tempfile::tempdir().unwrap();
    let first = Driver::Sim(sim_in(state.path()));
    let machine = first.start(spec("r1", "a")).await.unwrap();
    phase(&machine, "ready").await;
    let ended = first.start(spec("r2", "a")).await.unwrap();
    running(&ended).await;
    ended.kill().await;
    let address = machine.address();
    // The process is gone: neither its driver nor its handles are left, and its sockets are closed.
    drop((first, machine, ended));
    let until = tokio::time::Instant::now() + Duration::from_secs(5);
    while client().get(format!("http://{address}:8899/healthz")).send().await.is_ok() {
        assert!(tokio::time::Instant::now() < until, "the old agent still answers");
    }
    let second = Driver::Sim(sim_in(state.path()));
    let mut found = second.reattach().await.unwrap();
    found.sort_by(|a, b| a.uid().cmp(b.uid()));
    let statuses: Vec<_> = found.iter().map(|m| (m.uid().to_owned(), m.status().run)).collect();
    assert_eq!(statuses, [("r1".into(), Run::Running), ("r2".into(), Run::Ended(End::Killed))]);
    let again = second.get("r1").unwrap();
    assert_eq!(again.address(), address);
    assert_eq!(phase(&again, "ready").await["phase"], "ready");
}

#[tokio::test]
async fn rules_are_set_over_http_and_nonsense_is_refused() {
    let bench = bench();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/sim/v1/rules", listener.local_addr().unwrap());
    let tracker = TaskTracker::new();
    let app = lab_machine::sim::router(bench.sim.clone());
    tracker.spawn(async move { axum::serve(listener, app).await });
    let put = |body: &str| client().put(&base).body(body.to_owned()).send();
    assert_eq!(
        put(r#"{"rules":[{"lab":"x","behaviour":{"boot_ms":1}}]}"#).await.unwrap().status().as_u16(),
        200
    );
    assert_eq!(put(r#"{"rulez":[]}"#).await.unwrap().status().as_u16(), 400);
    let got: Rules = client().get(&base).send().await.unwrap().json().await.unwrap();
    assert_eq!(got.rules[0].behaviour.boot_ms, Some(1));
}

#[tokio::test]
async fn a_thousand_machines_are_cheap() {
    let bench = bench();
    let before = std::time::Instant::now();
    let mut machines = Vec::new();
    for index in 0..1000 {
        machines.push(bench.driver.start(spec(&format!("m{index}"), "a")).await.unwrap());
    }
    for machine in &machines {
        running(machine).await;
    }
    phase(machines.last().unwrap(), "ready").await;
    for machine in &machines {
        bench.driver.remove(machine.uid()).await.unwrap();
    }
    // Seconds on an idle host; a busy one must not fail the test.
    assert!(before.elapsed() < Duration::from_secs(120), "it took {:?}", before.elapsed());
}
