//! A killed service, restarted: the session goes on.

use std::time::Duration;

use lab_e2e::{Operator, Student};
use lab_stack::{Options, Stack};

const SOON: Duration = Duration::from_secs(90);
const LAB: &str = "systemd-repair";
const SERVICES: [&str; 5] = ["lab-api", "lab-provisioner", "lab-readiness", "lab-reaper", "lab-console-gw"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_whichever_service_is_killed_at_whichever_moment() {
    let stack = Stack::start(Options::sim()).await.unwrap();
    let operator = Operator::new(&stack.kubeconfig("admin"), stack.namespace()).await.unwrap();
    for service in SERVICES {
        let student =
            Student::login(&stack.web_url(), &format!("{service}-killed"), "student").await.unwrap();
        let id = student.start(LAB).await.unwrap();
        assert!(stack.kill(service), "{service} runs");
        stack.wait_healthy(service, SOON).await.unwrap();
        student.wait_for(&id, "ready", SOON).await.unwrap();
        let mut terminal = student.terminal(&id).await.unwrap();
        terminal.prompt(SOON).await.unwrap();
        assert!(stack.kill(service), "{service} runs again");
        stack.wait_healthy(service, SOON).await.unwrap();
        assert_eq!(student.session(&id).await.unwrap()["state"], "ready", "after {service} was killed");
        student.terminal(&id).await.unwrap().prompt(SOON).await.unwrap();
        student.end(&id).await.unwrap();
        assert!(stack.kill(service), "{service} runs again");
        student.wait_for(&id, "ended", SOON * 2).await.unwrap();
        stack.wait_healthy(service, SOON).await.unwrap();
        assert_eq!(
            operator.objects(Some(&id)).await.unwrap(),
            Vec::<String>::new(),
            "after {service} was killed"
        );
    }
    stack.stop().await;
}
