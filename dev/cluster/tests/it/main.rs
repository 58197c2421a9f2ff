//! The cluster from outside: HTTP as recorded from the real thing, and kube clients against it.

mod client;
mod harness;
mod load;
mod replay;
mod restart;
mod rights;
