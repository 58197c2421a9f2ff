//! The whole stack, from outside: every process real, machines on `sim` here, real guests in `guest`, a real browser
//! in `browser`.

mod browser;
mod faults;
mod guest;
mod journey;
mod refusals;
