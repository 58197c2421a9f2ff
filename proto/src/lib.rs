//! The event contract: types made from `lab/v1/*.proto`, the subject names, and what makes two facts the same.
//!
//! Services meet only here. Enums of the wire have an `_UNSPECIFIED` zero and may grow; [`convert`] turns them into the
//! closed lists of `lab-domain` and refuses what this build does not know.

pub mod convert;
pub mod fact;
pub mod subjects;

/// Messages of `lab.v1`.
#[expect(missing_docs, reason = "prost-build writes no docs for oneofs and enums of its own")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/lab.v1.rs"));
}

pub use prost::Message;
