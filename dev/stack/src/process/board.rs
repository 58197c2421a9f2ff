//! The supervisor's own copy of the record, written out whenever it changes.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ident::Ident;
use crate::record::{Health, Phase, ProcessRecord, Record};
use crate::ui;

/// The record and where it is written.
pub(crate) struct Board {
    file: PathBuf,
    record: Mutex<Record>,
}

impl Board {
    pub(crate) fn new(file: PathBuf, record: Record) -> Self {
        let board = Self { file, record: Mutex::new(record) };
        board.change(|_| {});
        board
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Record {
        self.lock().clone()
    }

    /// Changes the record and writes it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Record)) {
        let mut record = self.lock();
        change(&mut record);
        if let Err(error) = record.write(&self.file) {
            ui::warn(format_args!("{error:#}"));
        }
    }

    pub(crate) fn step(&self, what: impl Into<String>) {
        let what = what.into();
        ui::warn(format_args!("[stack] {what}"));
        self.change(|record| record.step = what);
    }

    pub(crate) fn note(&self, note: String) {
        ui::warn(format_args!("[stack] {note}"));
        self.change(|record| record.notes.push(note));
    }

    pub(crate) fn phase(&self, phase: Phase) {
        self.change(|record| record.phase = phase);
    }

    /// A process started, for the first time or again.
    pub(crate) fn started(&self, name: &str, ident: Ident, log: PathBuf) {
        self.change(|record| match record.processes.iter_mut().find(|process| process.name == name) {
            Some(process) => {
                process.ident = ident;
                process.health = Health::Starting;
            }
            None => record.processes.push(ProcessRecord {
                name: name.to_owned(),
                ident,
                health: Health::Starting,
                detail: None,
                restarts: 0,
                log,
            }),
        });
    }

    /// A process ended by itself; returns how often it has.
    pub(crate) fn ended(&self, name: &str, status: &str) -> u32 {
        let mut restarts = 0;
        self.change(|record| {
            if let Some(process) = record.processes.iter_mut().find(|process| process.name == name) {
                process.health = Health::Restarting;
                process.detail = Some(format!("it ended: {status}"));
                process.restarts += 1;
                restarts = process.restarts;
            }
        });
        restarts
    }

    /// What a health check said. Written only when it says something new.
    pub(crate) fn health(&self, name: &str, health: Health, detail: Option<String>) {
        let known = self.process(name);
        if known.is_some_and(|process| process.health != health || process.detail != detail) {
            self.change(|record| {
                if let Some(process) = record.processes.iter_mut().find(|process| process.name == name) {
                    process.health = health;
                    process.detail = detail;
                }
            });
        }
    }

    pub(crate) fn process(&self, name: &str) -> Option<ProcessRecord> {
        self.lock().processes.iter().find(|process| process.name == name).cloned()
    }
}
