//! What a played guest knows: shared by its life, its agent and its console.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::rules::{Behaviour, Rules};

/// What the agent says about the lab: INTERFACE of the agent, `GET /ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) phase: Phase,
    pub(super) cause: Option<Cause>,
    pub(super) exit_code: Option<i32>,
    pub(super) log_tail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Booting,
    Preparing,
    Ready,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    ExitStatus,
    Timeout,
    CloudInit,
    Signal,
}

impl Report {
    pub(super) fn at(phase: Phase) -> Self {
        Self { phase, cause: None, exit_code: None, log_tail: String::new() }
    }

    pub(super) fn failed(cause: Cause, exit_code: Option<i32>, log: &str) -> Self {
        Self { phase: Phase::Failed, cause: Some(cause), exit_code, log_tail: tail(log) }
    }
}

/// At most this much of a log is told.
const LOG_TAIL: usize = 4096;

pub(super) fn tail(log: &str) -> String {
    let mut from = log.len().saturating_sub(LOG_TAIL);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    log[from..].to_owned()
}

/// What cloud-init would have been told that matters here. Never printed: it holds the token.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) token: Option<String>,
    pub(super) prepare_timeout_s: u64,
}

/// The path of our file in the user-data.
const MACHINE_FILE: &str = "/opt/ttlab/machine.json";

impl Settings {
    /// Reads the entry of `write_files` that says who the machine is. A seed without one is a guest without a token.
    pub(super) fn from_user_data(user_data: &str) -> Self {
        #[derive(Deserialize)]
        struct CloudConfig {
            #[serde(default)]
            write_files: Vec<File>,
        }
        #[derive(Deserialize)]
        struct File {
            path: String,
            #[serde(default)]
            content: String,
            #[serde(default)]
            encoding: Option<String>,
        }
        #[derive(Deserialize)]
        struct MachineFile {
            token: Option<String>,
            prepare_timeout_s: Option<f64>,
        }
        let read = || -> Option<MachineFile> {
            // Ours is JSON, which is YAML, and large: a JSON parser is many times faster.
            let body = user_data.trim_start_matches("#cloud-config").trim_start();
            let config: CloudConfig =
                serde_json::from_str(body).ok().or_else(|| serde_saphyr::from_str(user_data).ok())?;
            let file = config.write_files.into_iter().find(|file| file.path == MACHINE_FILE)?;
            let bytes = match file.encoding.as_deref() {
                None | Some("text/plain") => file.content.into_bytes(),
                Some("b64" | "base64") => {
                    let compact: String = file.content.split_whitespace().collect();
                    base64::engine::general_purpose::STANDARD.decode(compact).ok()?
                }
                Some(_) => return None,
            };
            serde_json::from_slice(&bytes).ok()
        };
        let file = read();
        Self {
            prepare_timeout_s: file
                .as_ref()
                .and_then(|file| file.prepare_timeout_s)
                .map_or(300, whole_seconds),
            token: file.and_then(|file| file.token),
        }
    }
}

/// At least one second; a number that is none of a duration becomes that too.
fn whole_seconds(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds.ceil()).map_or(1, |d| d.as_secs().max(1))
}

/// One played guest.
pub(super) struct Guest {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) settings: Settings,
    pub(super) behaviour: Behaviour,
    pub(super) report: watch::Sender<Report>,
    /// One `/exec` at a time.
    pub(super) exec: tokio::sync::Mutex<()>,
    rules: Arc<Mutex<Rules>>,
    memory: Mutex<Memory>,
}

/// What a guest keeps over its reboots.
#[derive(Debug, Default)]
struct Memory {
    words: HashSet<String>,
    size: Option<(u16, u16)>,
    answers: VecDeque<(String, Answer)>,
}

/// What `/exec` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) exit_code: i32,
    pub(super) output: String,
    pub(super) truncated: bool,
    pub(super) timed_out: bool,
}

/// Words that one guest remembers, and how long each may be: what is typed must not fill our memory.
const WORDS: usize = 2048;
const WORD_LENGTH: usize = 128;
/// Answers that are given again for a repeated id.
const ANSWERS: usize = 64;
/// The cap of an answer's output.
const OUTPUT: usize = 65_536;

impl Guest {
    pub(super) fn new(
        name: String,
        labels: BTreeMap<String, String>,
        settings: Settings,
        behaviour: Behaviour,
        report: Report,
        rules: Arc<Mutex<Rules>>,
    ) -> Self {
        let (report, _) = watch::channel(report);
        Self {
            name,
            labels,
            settings,
            behaviour,
            report,
            exec: tokio::sync::Mutex::new(()),
            rules,
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was typed, word by word, so that a check can need it.
    pub(super) fn remember(&self, line: &str) {
        let mut memory = self.memory();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
        for word in line.split(|c| !is_part(c)).filter(|word| !word.is_empty() && word.len() <= WORD_LENGTH) {
            if memory.words.len() < WORDS {
                memory.words.insert(word.to_owned());
            }
        }
    }

    pub(super) fn words(&self) -> Vec<String> {
        self.memory().words.iter().cloned().collect()
    }

    /// Rows and columns of the serial terminal.
    pub(super) fn size(&self) -> (u16, u16) {
        self.memory().size.unwrap_or((24, 80))
    }

    pub(super) fn resize(&self, rows: u16, cols: u16) {
        self.memory().size = Some((rows, cols));
    }

    pub(super) fn answered(&self, id: &str) -> Option<Answer> {
        self.memory().answers.iter().find(|(known, _)| known == id).map(|(_, answer)| answer.clone())
    }

    pub(super) fn keep(&self, answer: &Answer) {
        let mut memory = self.memory();
        if memory.answers.len() == ANSWERS {
            memory.answers.pop_front();
        }
        memory.answers.push_back((answer.id.clone(), answer.clone()));
    }

    /// Decides what a script does: a rule, else the words it needs, else success.
    pub(super) fn script(&self, script: &str) -> Scripted {
        let scripted = {
            let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            rules.behaviour(&self.labels).exec
        };
        // What a used-up rule (`times`) gave this machine at its start still holds for it.
        let own = self.behaviour.exec.iter().cloned();
        if let Some(rule) = scripted.into_iter().chain(own).find(|rule| script.contains(&rule.contains)) {
            let truncated = rule.output.len() > OUTPUT;
            let output = if truncated { cut(&rule.output) } else { rule.output };
            return Scripted {
                exit_code: rule.exit,
                output,
                truncated,
                delay: Duration::from_millis(rule.delay_ms),
                drops: rule.drops,
            };
        }
        let memory = self.memory();
        let missing: Vec<&str> = needs(script).filter(|word| !memory.words.contains(*word)).collect();
        let (exit_code, output) = if missing.is_empty() {
            (0, "ok\n".to_owned())
        } else {
            (1, format!("missing: {}\n", missing.join(" ")))
        };
        Scripted { exit_code, output, truncated: false, delay: Duration::ZERO, drops: false }
    }
}

/// What a script will do.
pub(super) struct Scripted {
    pub(super) exit_code: i32,
    pub(super) output: String,
    pub(super) truncated: bool,
    pub(super) delay: Duration,
    pub(super) drops: bool,
}

fn cut(output: &str) -> String {
    let mut end = OUTPUT;
    while !output.is_char_boundary(end) {
        end -= 1;
    }
    output[..end].to_owned()
}

/// The words that a script says it needs: `sim:needs <word>`, any number of times.
fn needs(script: &str) -> impl Iterator<Item = &str> {
    script.split("sim:needs").skip(1).filter_map(|rest| rest.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(rules: &str) -> Guest {
        let rules: Rules = serde_json::from_str(rules).unwrap();
        let settings = Settings { token: None, prepare_timeout_s: 1 };
        let report = Report::at(Phase::Ready);
        Guest::new(
            "m".into(),
            BTreeMap::new(),
            settings,
            Behaviour::default(),
            report,
            Arc::new(Mutex::new(rules)),
        )
    }

    #[test]
    fn token_is_found_in_plain_and_encoded_user_data() {
        let json = r#"{"token":"abc","session":"s","machine":"main","lab":"l","prepare_timeout_s":7.0}"#;
        let plain = format!(
            "#cloud-config\nwrite_files:\n  - path: /x\n    content: y\n  - path: /opt/ttlab/machine.json\n    content: '{json}'\n"
        );
        let got = Settings::from_user_data(&plain);
        assert_eq!((got.token.as_deref(), got.prepare_timeout_s), (Some("abc"), 7));
        let encoded = base64::engine::general_purpose::STANDARD.encode(json);
        let b64 = format!(
            "#cloud-config\nwrite_files:\n- path: /opt/ttlab/machine.json\n  encoding: b64\n  content: {encoded}\n"
        );
        assert_eq!(Settings::from_user_data(&b64).token.as_deref(), Some("abc"));
        assert_eq!(Settings::from_user_data("#!/bin/sh\n").token, None);
    }

    #[test]
    fn check_that_needs_a_word_fails_before_it_was_typed_and_passes_after() {
        let guest = guest("{}");
        let script = "#!/bin/sh\n# sim:needs fix-1\n";
        assert_eq!(guest.script(script).exit_code, 1);
        guest.remember("echo \"fix-1\"; true");
        assert_eq!(guest.script(script).exit_code, 0);
    }

    #[test]
    fn rule_answers_before_the_words_do() {
        let guest = guest(r#"{"defaults":{"exec":[{"contains":"check1","exit":5,"output":"no"}]}}"#);
        let got = guest.script("sh check1 # sim:needs x");
        assert_eq!((got.exit_code, got.output.as_str()), (5, "no"));
        assert_eq!(guest.script("other").exit_code, 0);
    }

    #[test]
    fn log_tail_is_capped_on_a_character_boundary() {
        let log = "é".repeat(5000);
        let got = tail(&log);
        assert!(got.len() <= LOG_TAIL && got.chars().all(|c| c == 'é'));
    }
}
