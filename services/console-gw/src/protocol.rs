//! The text frames between page and gateway. Bytes of the console travel in binary frames, unchanged.

use serde::{Deserialize, Serialize};

/// Close codes that the page knows. 4000-4999 are the application's by RFC 6455.
pub mod close {
    /// The session is over; the reason says why.
    pub const ENDED: u16 = 4000;
    /// The machine's console broke off; coming back gives a new epoch.
    pub const LOST: u16 = 4001;
    /// This viewer took no bytes for too long.
    pub const TOO_SLOW: u16 = 4008;
    /// This console has as many viewers as it takes (RFC 6455 registry: try again later).
    pub const FULL: u16 = 1013;
    /// The gateway restarts (RFC 6455 registry: service restart).
    pub const RESTART: u16 = 1012;
    /// A frame that the protocol does not know.
    pub const UNSUPPORTED: u16 = 1003;
}

/// From the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToPage {
    /// First frame. `offset` is that of the next byte.
    Hello {
        /// New with each upstream connection; offsets count within it.
        epoch: String,
        /// Offset of the next binary byte.
        offset: u64,
        /// Which machine.
        machine: String,
        /// True for staff who watch: what they type is dropped.
        readonly: bool,
    },
    /// Bytes that this viewer will never see.
    Gap {
        /// First lost offset.
        from: u64,
        /// Offset behind the last lost byte.
        to: u64,
        /// True where the stream began anew: then offsets before it mean nothing.
        new_epoch: bool,
    },
    /// Who looks on.
    Viewers {
        /// All.
        count: usize,
        /// Those who are staff.
        staff: usize,
    },
    /// The session is over; a close frame follows.
    Ending {
        /// `user`, `expired`, …; `unknown` if the api did not say.
        reason: String,
        /// Plain words.
        message: String,
    },
    /// Answer to a ping.
    Pong,
}

/// From the page.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromPage {
    /// The terminal's size.
    Resize {
        /// 1 to 500.
        rows: u16,
        /// 1 to 1000.
        cols: u16,
    },
    /// Is anybody there?
    Ping {},
}

impl FromPage {
    /// Reads a text frame.
    ///
    /// # Errors
    /// In plain words, for the close frame.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let message = serde_json::from_str(text).map_err(|_| "not a control message")?;
        match message {
            Self::Resize { rows, cols } if !(1..=500).contains(&rows) || !(1..=1000).contains(&cols) => {
                Err("a terminal has 1 to 500 rows and 1 to 1000 columns")
            }
            good @ (Self::Resize { .. } | Self::Ping {}) => Ok(good),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_as_documented() {
        assert_eq!(
            FromPage::parse(r#"{"type":"resize","rows":40,"cols":120}"#),
            Ok(FromPage::Resize { rows: 40, cols: 120 })
        );
        assert_eq!(FromPage::parse(r#"{"type":"ping"}"#), Ok(FromPage::Ping {}));
        let hello = ToPage::Hello { epoch: "e".into(), offset: 7, machine: "main".into(), readonly: false };
        assert_eq!(
            serde_json::to_string(&hello).unwrap(),
            r#"{"type":"hello","epoch":"e","offset":7,"machine":"main","readonly":false}"#
        );
        assert_eq!(serde_json::to_string(&ToPage::Pong).unwrap(), r#"{"type":"pong"}"#);
    }

    #[test]
    fn hostile_frames_are_refused() {
        for bad in [
            "",
            "x",
            "[]",
            r#"{"type":"exec"}"#,
            r#"{"type":"resize","rows":0,"cols":80}"#,
            r#"{"type":"resize","rows":24,"cols":70000}"#,
            r#"{"type":"resize","rows":24,"cols":80,"x":1}"#,
            r#"{"type":"resize","rows":-1,"cols":80}"#,
        ] {
            assert!(FromPage::parse(bad).is_err(), "{bad}");
        }
    }
}
