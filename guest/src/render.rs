//! The cloud-config document.
//!
//! It is written as JSON, which every YAML parser reads, by a serialiser that quotes everything: no value can break out
//! of its place. Text that YAML 1.1 would not hand back unchanged (it folds U+2028 and refuses DEL) goes as base64.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use lab_domain::{LabId, MachineName, SessionId};
use serde::Serialize;

use crate::{
    CODE_DIR,
    archive::{Error, File, pack},
};

const AGENT: &str = include_str!("../agent.py");
const START: &str = include_str!("../start.sh");
const AGENT_UNIT: &str = include_str!("../ttlab-agent.service");
const AUTOLOGIN: &str = include_str!("../autologin.conf");
const NOTHING_TO_PREPARE: &str = "#!/bin/sh\n";

/// One machine of a session.
#[derive(Clone)]
pub struct Machine<'a> {
    /// The session.
    pub session: SessionId,
    /// The machine's name within it.
    pub machine: &'a MachineName,
    /// The lab.
    pub lab: &'a LabId,
    /// What the agent's callers must show. Secret.
    pub token: &'a str,
    /// How long the prepare script may run; the operator's time factor is applied already.
    pub prepare_timeout: Duration,
    /// Laid over `/`.
    pub files: &'a [File],
    /// The prepare script; without one the machine is ready when it has booted.
    pub prepare: Option<&'a [u8]>,
}

impl Machine<'_> {
    /// The name that the machine gives itself: unique among living sessions, short enough for a prompt.
    #[must_use]
    pub fn hostname(&self) -> String {
        // The end of a UUIDv7 is its random part; its beginning is the time, which classmates share.
        let session = self.session.0.simple().to_string();
        format!("{}-{}", self.machine, &session[24..])
    }
}

/// The two documents of a NoCloud seed. Its `Debug` shows sizes only: the text holds the token.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    /// Key `userdata` of the Secret.
    pub user_data: String,
    /// Key `networkdata` of the Secret. None for one interface: cloud-init's own fallback, DHCP on the first, fits every
    /// image, while a document would have to know the interface's name.
    pub network_data: Option<String>,
}

impl UserData {
    /// Bytes in the Secret.
    #[must_use]
    pub fn size(&self) -> usize {
        self.user_data.len() + self.network_data.as_ref().map_or(0, String::len)
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.size())
    }
}

#[derive(Serialize)]
struct CloudConfig {
    hostname: String,
    preserve_hostname: bool,
    // No account beside root, whatever the image's default is.
    users: [&'static str; 0],
    write_files: Vec<WriteFile>,
    runcmd: [[String; 2]; 1],
}

#[derive(Serialize)]
struct WriteFile {
    path: String,
    permissions: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    content: String,
}

#[derive(Serialize)]
struct MachineJson<'a> {
    token: &'a str,
    session: SessionId,
    machine: &'a MachineName,
    lab: &'a LabId,
    prepare_timeout_s: f64,
}

/// The user-data of `machine`. The same machine gives the same text.
///
/// # Errors
/// A file whose path does not stay below `/`, or that an archive cannot name.
pub fn render(machine: &Machine<'_>) -> Result<UserData, Error> {
    let own = MachineJson {
        token: machine.token,
        session: machine.session,
        machine: machine.machine,
        lab: machine.lab,
        prepare_timeout_s: machine.prepare_timeout.as_secs_f64(),
    };
    let own = serde_json::to_string(&own).expect("strings and a finite number always serialise");
    let prepare = machine.prepare.unwrap_or(NOTHING_TO_PREPARE.as_bytes());
    let write_files = vec![
        write_file("machine.json", "0600", own.as_bytes()),
        write_file("agent.py", "0755", AGENT.as_bytes()),
        write_file("prepare.sh", "0755", prepare),
        write_file("files.tar.gz", "0600", &pack(machine.files)?),
        write_file("start.sh", "0755", START.as_bytes()),
        write_file("/etc/systemd/system/ttlab-agent.service", "0644", AGENT_UNIT.as_bytes()),
        write_file(
            "/etc/systemd/system/serial-getty@ttyS0.service.d/ttlab-autologin.conf",
            "0644",
            AUTOLOGIN.as_bytes(),
        ),
    ];
    let config = CloudConfig {
        hostname: machine.hostname(),
        preserve_hostname: false,
        users: [],
        write_files,
        runcmd: [["/bin/sh".to_owned(), format!("{CODE_DIR}/start.sh")]],
    };
    let body = serde_json::to_string_pretty(&config).expect("strings and booleans always serialise");
    Ok(UserData { user_data: format!("#cloud-config\n{body}\n"), network_data: None })
}

/// How many bytes of a Secret these files and this script will take, at most.
///
/// # Errors
/// As [`render`].
pub fn size(files: &[File], prepare: Option<&[u8]>) -> Result<usize, Error> {
    let machine = MachineName::new("m".repeat(20)).expect("20 letters are a machine name");
    let lab = LabId::new("l".repeat(40)).expect("40 letters are a lab id");
    let longest = Machine {
        session: SessionId::generate(),
        machine: &machine,
        lab: &lab,
        token: &"0".repeat(64),
        prepare_timeout: Duration::from_nanos(999_999_999_999_999),
        files,
        prepare,
    };
    Ok(render(&longest)?.size())
}

/// `path` is below our own directory, or absolute.
fn write_file(path: &str, permissions: &'static str, content: &[u8]) -> WriteFile {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{CODE_DIR}/{path}") };
    match std::str::from_utf8(content) {
        Ok(text) if is_plain(text) => {
            WriteFile { path, permissions, encoding: None, content: text.to_owned() }
        }
        Ok(_) | Err(_) => {
            WriteFile { path, permissions, encoding: Some("b64"), content: BASE64.encode(content) }
        }
    }
}

/// Printable ASCII, tabs and line feeds: what YAML hands back byte for byte from a quoted scalar.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'\t' | b'\n' | b' '..=b'~'))
}

#[cfg(test)]
mod tests;
