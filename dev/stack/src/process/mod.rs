//! Child processes: who they are, how they are started so that they never outlive their starter, how they end.

pub(crate) mod board;
pub(crate) mod crew;
pub(crate) mod ident;
pub(crate) mod keeper;
pub(crate) mod probe;
pub(crate) mod sweep;
