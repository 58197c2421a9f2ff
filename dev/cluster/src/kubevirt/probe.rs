//! The readiness probe of an instance: the kubelet asks the guest, and the pod's Ready says what it answered.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::node::set_ready;
use super::work::World;
use crate::object;
use crate::store::{Key, ObjectRef};

/// What is asked, and how patiently.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    port: u16,
    path: Option<String>,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

impl Probe {
    fn read(spec: &Value) -> Option<Self> {
        let number = |key: &str, default: u64| spec.get(key).and_then(Value::as_u64).unwrap_or(default);
        let seconds = |key: &str, default: u64| Duration::from_secs(number(key, default));
        let count = |key: &str, default: u64| u32::try_from(number(key, default)).unwrap_or(u32::MAX).max(1);
        let http = spec.get("httpGet");
        let port = http.or_else(|| spec.get("tcpSocket"))?.get("port")?;
        let port = port.as_u64().or_else(|| port.as_str()?.parse().ok())?;
        Some(Self {
            port: u16::try_from(port).ok()?,
            path: http.map(|get| get.get("path").and_then(Value::as_str).unwrap_or("/").to_owned()),
            delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("timeoutSeconds", 1).max(Duration::from_secs(1)),
            successes: count("successThreshold", 1),
            failures: count("failureThreshold", 3),
        })
    }

    async fn ask(&self, address: Ipv4Addr) -> bool {
        let asked = tokio::time::timeout(self.timeout, self.try_ask(address)).await;
        asked.is_ok_and(|answer| answer.unwrap_or(false))
    }

    async fn try_ask(&self, address: Ipv4Addr) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(SocketAddr::from((address, self.port))).await?;
        let Some(path) = &self.path else { return Ok(true) };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}:{}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        let head = String::from_utf8_lossy(&head);
        let code = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
        Ok(code.is_some_and(|code| (200..400).contains(&code)))
    }
}

/// Begins to probe an instance, once.
pub(super) fn begin(world: &Arc<World>, vmi: &ObjectRef, pod: &ObjectRef, address: Ipv4Addr) {
    let spec = object::at(&vmi.value, "spec.readinessProbe");
    let Some(probe) = spec.and_then(Probe::read) else { return };
    if !world.memory().probed.insert(vmi.uid().to_owned()) {
        return;
    }
    let (world, pod, uid) = (Arc::clone(world), pod.key.clone(), vmi.uid().to_owned());
    world.tracker.clone().spawn(async move {
        tokio::select! {
            () = watch(&world, &probe, &pod, &uid, address) => {}
            () = world.shutdown.cancelled() => {}
        }
    });
}

async fn watch(world: &World, probe: &Probe, pod: &Key, uid: &str, address: Ipv4Addr) {
    let Some(machine) = world.driver.get(uid) else { return };
    tokio::time::sleep(probe.delay).await;
    let (mut in_row, mut last) = (0_u32, false);
    loop {
        let answer = tokio::select! {
            answer = probe.ask(address) => answer,
            _end = machine.ended() => return,
        };
        in_row = if answer == last { in_row.saturating_add(1) } else { 1 };
        last = answer;
        let wanted = if answer { probe.successes } else { probe.failures };
        if in_row >= wanted && !tell(world, pod, answer) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(probe.period) => {}
            _end = machine.ended() => return,
        }
    }
}

/// Writes the result; whether the pod is still there to be probed.
fn tell(world: &World, pod: &Key, answer: bool) -> bool {
    world
        .client
        .update_status(pod, |pod| {
            if object::text_at(pod, "status.phase") == "Running" {
                set_ready(&mut pod["status"], answer);
            }
            Ok(())
        })
        .is_ok()
}
