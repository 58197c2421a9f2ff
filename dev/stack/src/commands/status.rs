//! `./lab status` and `./lab kubeconfig`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;

use crate::paths::Paths;
use crate::process::ident::{Ident, pss_kib};
use crate::process::sweep;
use crate::record::{Health, Phase, ProcessRecord, Record};
use crate::ui;

/// Prints the processes; exit code 1 unless everything is up and healthy.
pub(crate) fn status(as_json: bool) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let record = Record::read(&paths.record()).filter(Record::is_current);
    let guests = sweep::guests(&paths.state);
    let Some(record) = record else {
        if as_json {
            ui::say(json!({"up": false, "state_dir": paths.state, "processes": [], "guests": pids(&guests)}));
        } else {
            ui::say("TT Lab is not running: ./lab up starts it.");
        }
        return Ok(ExitCode::FAILURE);
    };
    let well = record.phase == Phase::Up
        && record.processes.iter().all(|process| health(process) == Health::Healthy);
    if as_json {
        ui::say(serde_json::to_string_pretty(&document(&record, &paths, &guests, well))?);
    } else {
        table(&record, &guests);
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn pids(guests: &[Ident]) -> Vec<i32> {
    guests.iter().map(|guest| guest.pid).collect()
}

/// What the record says, unless the process is gone in this very moment.
fn health(process: &ProcessRecord) -> Health {
    if process.ident.is_alive() { process.health } else { Health::Restarting }
}

fn document(record: &Record, paths: &Paths, guests: &[Ident], well: bool) -> serde_json::Value {
    let processes: Vec<serde_json::Value> = record
        .processes
        .iter()
        .map(|process| {
            json!({
                "name": process.name, "pid": process.ident.pid, "health": health(process), "detail": process.detail,
                "restarts": process.restarts, "pss_kib": pss_kib(process.ident.pid), "log": process.log,
            })
        })
        .collect();
    let addresses = &record.addresses;
    json!({
        "up": well, "phase": record.phase, "step": record.step, "error": record.error, "notes": record.notes,
        "web": addresses.web, "nats": addresses.nats, "database": addresses.database,
        "kubernetes": addresses.kubernetes, "kubeconfig": addresses.kubeconfig, "namespace": addresses.namespace,
        "environment": addresses.environment, "driver": addresses.driver,
        "state_dir": paths.state, "cache_dir": paths.cache, "supervisor_pid": record.supervisor.pid,
        "nats_nkey": paths.state.join("keys/nats-subscriber.nk"), "processes": processes, "guests": pids(guests),
    })
}

fn table(record: &Record, guests: &[Ident]) {
    ui::say(format_args!("{:<16} {:>8}  {:<11} {:>9}  {}", "process", "pid", "health", "memory", ""));
    let mut sum = 0;
    for process in &record.processes {
        let memory = pss_kib(process.ident.pid).unwrap_or(0);
        sum += memory;
        let mut remark = process.detail.clone().unwrap_or_default();
        if process.restarts > 0 {
            remark = format!("started again {}x  {remark}", process.restarts);
        }
        let state = health(process).word();
        let shown: String = remark.chars().take(90).collect();
        ui::say(format_args!(
            "{:<16} {:>8}  {state:<11} {:>7.1} M  {shown}",
            process.name,
            process.ident.pid,
            mib(memory)
        ));
    }
    for guest in guests {
        let memory = pss_kib(guest.pid).unwrap_or(0);
        ui::say(format_args!(
            "{:<16} {:>8}  {:<11} {:>7.1} M",
            "  a machine",
            guest.pid,
            "running",
            mib(memory)
        ));
    }
    ui::say(format_args!("{:<16} {:>8}  {:<11} {:>7.1} M  without machines", "together", "", "", mib(sum)));
    let addresses = &record.addresses;
    ui::say(format_args!(
        "\nweb       {}/\nbroker    {}\ndatabase  {}",
        addresses.web, addresses.nats, addresses.database
    ));
    ui::say(format_args!(
        "cluster   KUBECONFIG={}  (driver {})",
        addresses.kubeconfig.display(),
        addresses.driver
    ));
    if record.phase != Phase::Up {
        ui::say(format_args!("\n{}", record.error.as_deref().unwrap_or(&record.step)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "megabytes for the eye")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Prints the path of a kubeconfig.
pub(crate) fn kubeconfig(identity: Option<&str>) -> Result<ExitCode> {
    let paths = Paths::discover()?;
    let name = match identity {
        None => "admin".to_owned(),
        Some(service) if service.starts_with("ttlab-") => service.to_owned(),
        Some(service) => format!("ttlab-{}", service.trim_start_matches("lab-")),
    };
    let file = paths.kubeconfigs().join(format!("{name}.kubeconfig"));
    if !file.is_file() {
        let mut known: Vec<String> = std::fs::read_dir(paths.kubeconfigs())
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".kubeconfig")?.to_owned()))
            .collect();
        known.sort();
        if known.is_empty() {
            bail!("no cluster has been started here yet: ./lab up starts it");
        }
        bail!("the cluster knows no {name}; it knows {}", known.join(", "));
    }
    ui::say(file.display());
    Ok(ExitCode::SUCCESS)
}
