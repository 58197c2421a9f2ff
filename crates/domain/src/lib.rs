//! The words and rules of TT Lab, without any I/O.
//!
//! Everything here is a pure function of its arguments: no clock, no runtime, no network, no logging. Services load
//! what these functions need, call them, and carry out what they answer.

pub mod capacity;
pub mod deadline;
pub mod disk;
pub mod ghost;
pub mod id;
pub mod limits;
pub mod session;
pub mod token;
pub mod vocabulary;

pub use id::{
    Digest, Environment, EventId, InstallationId, LabId, MachineName, ObjectUid, OwnerName, SessionId, UserId,
};
pub use limits::StartLimits;
pub use vocabulary::{CheckOutcome, Deadline, DiskKind, EndReason, Runtime, State, UnknownWord, Verdict};
