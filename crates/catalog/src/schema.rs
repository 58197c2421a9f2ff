//! `lab.yaml` as it is written. Unknown keys and wrong types end here, with their line; meaning is `check`'s business.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::{Difficulty, Texts};

/// A word whose form is checked later, with the line to blame.
pub(crate) type Word = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lab {
    pub(crate) title: Texts,
    pub(crate) summary: Texts,
    pub(crate) difficulty: Difficulty,
    pub(crate) runtime: Word,
    #[serde(default)]
    pub(crate) life: Option<Word>,
    #[serde(default)]
    pub(crate) extend: Extend,
    #[serde(default)]
    pub(crate) idle: Option<Word>,
    #[serde(default)]
    pub(crate) limits: Limits,
    pub(crate) machines: Spanned<Vec<Machine>>,
    pub(crate) steps: Spanned<Vec<Step>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    #[serde(default)]
    pub(crate) step: Option<Word>,
    #[serde(default)]
    pub(crate) max: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    #[serde(default)]
    pub(crate) disk: Option<Word>,
    #[serde(default)]
    pub(crate) boot: Option<Word>,
    #[serde(default)]
    pub(crate) agent: Option<Word>,
    #[serde(default)]
    pub(crate) prepare: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) name: Word,
    pub(crate) image: Word,
    #[serde(default)]
    pub(crate) disk: Option<Word>,
    #[serde(default)]
    pub(crate) cpus: Option<Spanned<u32>>,
    #[serde(default)]
    pub(crate) memory: Option<Word>,
    #[serde(default)]
    pub(crate) files: Option<Word>,
    #[serde(default)]
    pub(crate) prepare: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) title: Texts,
    pub(crate) text: Word,
    #[serde(default)]
    pub(crate) hint: Option<Word>,
    #[serde(default)]
    pub(crate) solution: Option<Word>,
    #[serde(default)]
    pub(crate) check: Option<Check>,
    #[serde(default)]
    pub(crate) solve: Option<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    #[serde(default)]
    pub(crate) machine: Option<Word>,
    pub(crate) script: Word,
    #[serde(default)]
    pub(crate) timeout: Option<Word>,
    #[serde(default)]
    pub(crate) auto: bool,
}
