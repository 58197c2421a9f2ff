//! The console gateway: a browser's WebSocket to the serial console of a student's machine.
//!
//! It opens consoles and does nothing else: it creates, changes and deletes nothing. Who may open which console is
//! decided by [`decide`] from what the api answers, before the upgrade; the bytes are piped by [`console`] and
//! [`viewer`].

pub mod buffer;
pub mod console;
pub mod decide;
pub mod protocol;
pub mod viewer;
