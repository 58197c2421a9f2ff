//! The whole stack from outside: every process real, the machines scripted. Real guests are in `guest`, a real browser
//! in `browser`.

mod events;
mod faults;
mod journey;
mod refusals;
