//! What can go wrong, and whether it passes.

use lab_domain::SessionId;

use crate::known::Malformed;

/// One variant per operation that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The api gave no answer. Nothing is created.
    #[error("cannot ask the api about session {session}")]
    Ask {
        session: SessionId,
        #[source]
        source: lab_bus::Error,
    },
    /// The api gave an answer that this build cannot read. Nothing is created.
    #[error("cannot read the api's answer about session {session}")]
    Answer {
        session: SessionId,
        #[source]
        source: Malformed,
    },
    /// The sessions could not be listed.
    #[error("cannot list the sessions")]
    List(#[source] lab_bus::Error),
    /// A fact got no ack.
    #[error("cannot publish a fact of session {session}")]
    Publish {
        session: SessionId,
        #[source]
        source: lab_bus::Error,
    },
    /// The cluster refused or did not answer.
    #[error("cannot {operation} {name}")]
    Cluster {
        operation: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer of the cluster in time: it may have happened all the same.
    #[error("no answer in time to: {operation} {name}")]
    TimedOut { operation: &'static str, name: String },
    /// The cluster's answer lacks what every object has.
    #[error("an object without {what} came back from: {operation} {name}")]
    Odd { operation: &'static str, name: String, what: &'static str },
    /// The machine's user-data could not be made.
    #[error("cannot render the user-data of session {session}")]
    Render {
        session: SessionId,
        #[source]
        source: Box<lab_guest::Error>,
    },
    /// Another run works on this session, or the world did not come to rest.
    #[error("session {session} is busy")]
    Busy { session: SessionId },
}

/// What to do about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    /// It passes: try again later.
    Retry,
    /// The world is not as we saw it: look again at once.
    Conflict,
    /// This machine can never be made. `cause` is one word, `message` is for operators.
    Permanent { cause: &'static str, message: String },
}

impl Error {
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Cluster { source, operation, .. } => of_cluster(operation, source),
            Self::Render { .. } => Class::Permanent {
                cause: "lab_unusable",
                message: "the lab's files do not fit into a machine".to_owned(),
            },
            Self::Ask { .. }
            | Self::Answer { .. }
            | Self::List(_)
            | Self::Publish { .. }
            | Self::TimedOut { .. }
            | Self::Odd { .. }
            | Self::Busy { .. } => Class::Retry,
        }
    }
}

fn of_cluster(operation: &str, error: &kube::Error) -> Class {
    let kube::Error::Api(status) = error else { return Class::Retry };
    let permanent = |cause| {
        // The server may quote what it refuses, and a Secret holds the token: its words are not passed on.
        let words = if operation.contains("Secret") { "" } else { status.message.as_str() };
        let message = format!("cannot {operation}: {} {} {words}", status.code, status.reason);
        Class::Permanent { cause, message: message.chars().take(500).collect() }
    };
    match status.code {
        409 => Class::Conflict,
        // Only its text tells a full quota, which passes, from a missing right, which does not.
        403 if status.message.contains("exceeded quota") => Class::Retry,
        403 if status.message.contains("is being terminated") => permanent("namespace_terminating"),
        403 => permanent("forbidden"),
        // Creating names no object: it is the namespace, or KubeVirt itself, that is missing.
        404 if operation.starts_with("create") => permanent("not_served"),
        404 => Class::Conflict,
        400 | 405 | 413 | 415 | 422 => permanent("refused"),
        // 401: a token that is being renewed. 429 and 5xx: the server says so itself, or an admission webhook is away.
        _ => Class::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(operation: &'static str, code: u16, message: &str) -> Class {
        let status = kube::core::Status { code, message: message.to_owned(), ..Default::default() };
        let source = Box::new(kube::Error::Api(Box::new(status)));
        Error::Cluster { operation, name: "lab-x-main".to_owned(), source }.class()
    }

    #[test]
    fn each_recorded_refusal_has_its_class() {
        let create = "create VirtualMachine";
        let passing = [
            (403, "virtualmachines.kubevirt.io \"vm2\" is forbidden: exceeded quota: vms, requested: …"),
            (429, ""),
            (500, "failed calling webhook \"virtualmachines-mutator.kubevirt.io\": connection refused"),
            (503, ""),
            (401, "Unauthorized"),
        ];
        for (code, message) in passing {
            assert_eq!(class(create, code, message), Class::Retry, "{code} {message}");
        }
        let permanent = [
            (403, "virtualmachines.kubevirt.io is forbidden: User \"x\" cannot create resource", "forbidden"),
            (
                403,
                "unable to create new content in namespace t5 because it is being terminated",
                "namespace_terminating",
            ),
            (404, "namespaces \"nosuchns\" not found", "not_served"),
            (
                422,
                "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: …",
                "refused",
            ),
            (400, "strict decoding error", "refused"),
        ];
        for (code, message, expected) in permanent {
            let Class::Permanent { cause, message: told } = class(create, code, message) else {
                panic!("{code} {message}")
            };
            assert_eq!(cause, expected);
            assert!(told.contains(message));
        }
        assert_eq!(class(create, 409, "already exists"), Class::Conflict);
        assert_eq!(class("own Secret", 404, "not found"), Class::Conflict);
    }

    #[test]
    fn what_a_server_says_about_a_secret_is_not_passed_on() {
        let Class::Permanent { message, .. } = class("create Secret", 422, "data: token-in-here") else {
            panic!("not permanent")
        };
        assert!(!message.contains("token-in-here"), "{message}");
    }
}
