//! Who may open which console: pure, total, and the same for the page that only asks (no upgrade).

use lab_domain::{EndReason, MachineName, ObjectUid, OwnerName, SessionId, State, UserId};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `sub` of the token.
    pub name: OwnerName,
    /// Has the role teacher or admin: may watch any console, never type into a student's.
    pub staff: bool,
}

/// What the api said of the session, as far as a console needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// Its version when the api answered; facts carry it.
    pub version: u64,
    /// Its state.
    pub state: State,
    /// Why it ends, once it does.
    pub reason: Option<EndReason>,
    /// Whose it is.
    pub owner: OwnerName,
    /// The owner as events know them.
    pub user: UserId,
    /// The lab's id; facts carry it.
    pub lab: String,
    /// The number of `lab.v1.Runtime`; facts carry it.
    pub runtime: i32,
    /// Its machines with the VMI uid that the api has pinned.
    pub machines: Vec<(MachineName, Option<ObjectUid>)>,
}

/// How a viewer takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The owner: sees and types.
    Type,
    /// Staff: sees.
    Watch,
}

/// A console that may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Which machine.
    pub machine: MachineName,
    /// The only VMI whose console it may be.
    pub pinned: ObjectUid,
    /// How.
    pub mode: Mode,
}

/// Why a console is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// No such session for this caller.
    NotFound,
    /// The session has no machine of this name.
    UnknownMachine,
    /// Not ready yet.
    NotReady(State),
    /// Over.
    Over(Option<EndReason>),
}

/// Decides. A stranger learns nothing: their answer is that of a session that does not exist.
///
/// # Errors
/// The first rule that refuses.
pub fn admit(caller: &Caller, session: Option<&Session>, machine: Option<&str>) -> Result<Admitted, Refused> {
    let session = session.ok_or(Refused::NotFound)?;
    let mode = if session.owner == caller.name {
        Mode::Type
    } else if caller.staff {
        Mode::Watch
    } else {
        return Err(Refused::NotFound);
    };
    let found = match machine {
        Some(name) => session.machines.iter().find(|(m, _)| m.as_str() == name),
        None => session.machines.first(),
    };
    let (machine, pinned) = found.ok_or(Refused::UnknownMachine)?;
    match session.state {
        State::Ready => {}
        State::Ending | State::Ended => return Err(Refused::Over(session.reason)),
        state @ (State::Queued
        | State::Requested
        | State::Provisioning
        | State::Booting
        | State::Preparing) => {
            return Err(Refused::NotReady(state));
        }
    }
    // Ready implies a pin; without one there is no machine that could be the right one.
    let pinned = pinned.clone().ok_or(Refused::NotReady(session.state))?;
    Ok(Admitted { machine: machine.clone(), pinned, mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_domain::InstallationId;

    fn name(s: &str) -> OwnerName {
        OwnerName::new(s).unwrap()
    }

    fn session(state: State) -> Session {
        Session {
            id: SessionId::generate(),
            version: 3,
            state,
            reason: (!state.is_live()).then_some(EndReason::Idle),
            owner: name("alice"),
            user: UserId::of(InstallationId(SessionId::generate().0), &name("alice")),
            lab: "systemd-repair".into(),
            runtime: 1,
            machines: vec![(MachineName::new("main").unwrap(), Some(ObjectUid::new("uid-1").unwrap()))],
        }
    }

    fn caller(s: &str, staff: bool) -> Caller {
        Caller { name: name(s), staff }
    }

    #[test]
    fn only_a_ready_session_opens() {
        for state in State::ALL {
            let got = admit(&caller("alice", false), Some(&session(*state)), None);
            match state {
                State::Ready => assert_eq!(got.unwrap().mode, Mode::Type),
                State::Ending | State::Ended => assert_eq!(got, Err(Refused::Over(Some(EndReason::Idle)))),
                State::Queued
                | State::Requested
                | State::Provisioning
                | State::Booting
                | State::Preparing => {
                    assert_eq!(got, Err(Refused::NotReady(*state)));
                }
            }
        }
    }

    #[test]
    fn a_stranger_cannot_tell_a_foreign_session_from_none() {
        for state in State::ALL {
            for machine in [None, Some("main"), Some("nope")] {
                let got = admit(&caller("mallory", false), Some(&session(*state)), machine);
                assert_eq!(got, admit(&caller("mallory", false), None, machine));
            }
        }
    }

    #[test]
    fn staff_watch_and_do_not_type_but_for_their_own_session() {
        let s = session(State::Ready);
        assert_eq!(admit(&caller("teacher", true), Some(&s), None).unwrap().mode, Mode::Watch);
        assert_eq!(admit(&caller("alice", true), Some(&s), None).unwrap().mode, Mode::Type);
    }

    #[test]
    fn a_machine_must_exist_and_be_pinned() {
        let mut s = session(State::Ready);
        assert_eq!(admit(&caller("alice", false), Some(&s), Some("nope")), Err(Refused::UnknownMachine));
        s.machines[0].1 = None;
        assert_eq!(
            admit(&caller("alice", false), Some(&s), Some("main")),
            Err(Refused::NotReady(State::Ready))
        );
    }
}
