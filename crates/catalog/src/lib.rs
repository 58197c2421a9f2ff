//! The catalogue: labs as directories, read, checked and digested; and the operator's image table.
//!
//! One read-only directory is given to the services that need it. A lab that is not right is left out and told as one
//! or more [`Problem`]s with file and line; the others serve. A lab that is right but asks for what this release
//! cannot do is loaded with [`Lab::unsupported`] set, so that it can be listed and refused in plain words.
//!
//! ```text
//! labs/<id>/lab.yaml ──schema──> what was written ──check──> Lab ──digest of every byte and mode──> Lab::digest
//!           files/, scripts, texts ──tree (nothing outside, nothing huge)──┘
//! ```
//!
//! It does not watch the directory, and it runs no script.

mod check;
mod digest;
mod images;
mod lab;
mod load;
mod problem;
mod schema;
mod tree;

pub use images::{DataVolume, Image, ImageName, Images, ImagesError};
pub use lab::{Check, Difficulty, Extend, Lab, Machine, Memory, Step, Texts};
pub use lab_guest::{Content, File};
pub use load::{Catalog, Error};
pub use problem::Problem;
