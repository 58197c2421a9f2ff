//! One file per command of `./lab`.

pub(crate) mod bench;
pub(crate) mod door;
pub(crate) mod down;
pub(crate) mod logs;
pub(crate) mod secrets;
pub(crate) mod status;
pub(crate) mod supervise;
pub(crate) mod up;
pub(crate) mod warden;
