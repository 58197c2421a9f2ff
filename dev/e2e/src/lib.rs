//! What the end-to-end tests do, as the people they stand for: a student with a browser, an operator with a cluster.
//!
//! A student reaches the stack through its one public address only: HTTP, and the console's WebSocket. The operator
//! looks into the cluster to see that nothing is left.

mod operator;
mod python;
mod student;
mod terminal;

pub use operator::Operator;
pub use python::subscriber_packages;
pub use student::{Answer, Student};
pub use terminal::Terminal;
