//! CDI's part: a DataVolume becomes a claim of the same name, filled with a raw `disk.img` from the image store.
//!
//! ```text
//! "" ─▶ ImportScheduled ─▶ ImportInProgress ─▶ Succeeded
//! ```
//!
//! The claim is Pending until its disk is whole, and Bound then; the annotations of the DataVolume go on to it. Beside
//! `disk.img` lie the image's kernel, initrd and command line, where it has them. An import that a restart cut short
//! begins anew. Unlike CDI it knows no other source than a registry.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::images::Image;
use super::template::bytes;
use super::work::World;
use crate::object;
use crate::resource::PERSISTENT_VOLUME_CLAIMS;
use crate::status::Status;
use crate::store::{Key, ObjectRef};

/// CDI's source of events.
const COMPONENT: &str = "datavolume-import-controller";
/// CDI's annotation on a claim: the phase of the importer.
const IMPORTER: &str = "cdi.kubevirt.io/storage.pod.phase";
/// The storage class of this host's disk.
const STORAGE_CLASS: &str = "ttlab-local";
/// How long a played import takes where no rule says otherwise.
const PLAYED: Duration = Duration::from_millis(100);
/// How soon an import that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Where the files of a claim lie.
pub(super) fn directory(world: &World, namespace: &str, claim: &str) -> PathBuf {
    world.disks.join(namespace).join(claim)
}

/// The files of a claim go with it.
pub(super) fn claim_is_gone(world: &Arc<World>, key: &Key) {
    let directory = directory(world, &key.namespace, &key.name);
    let later = Arc::clone(world);
    let key = key.clone();
    world.tracker.spawn(async move {
        if later.client.find(&key).is_some() {
            return;
        }
        match tokio::fs::remove_dir_all(&directory).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(claim = %key, %error, "the disk of a claim could not be removed");
            }
            Ok(()) | Err(_) => {}
        }
    });
}

impl World {
    /// One look at a DataVolume.
    pub(super) fn data_volume(self: &Arc<Self>, key: &Key) -> Result<(), Status> {
        let Some(volume) = self.client.find(key) else { return Ok(()) };
        if object::deletion_timestamp(&volume.value).is_some() {
            return Ok(());
        }
        if matches!(object::text_at(&volume.value, "status.phase"), "Succeeded" | "Failed") {
            return Ok(());
        }
        let claim = Key::new(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, &key.name);
        let Some(found) = self.client.find(&claim) else {
            self.client.create(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, claim_for(&volume.value))?;
            self.show_import(key, "ImportScheduled", "N/A")?;
            let message = format!("Import into {} scheduled", key.name);
            self.client.event(&volume.value, "Normal", "ImportScheduled", &message, COMPONENT);
            return Ok(());
        };
        if !object::owner_references(&found.value).iter().any(|owner| owner.uid == volume.uid()) {
            let message =
                format!("Resource \"{}\" already exists and is not managed by DataVolume", key.name);
            self.say(&volume.value, "Warning", "ErrResourceExists", &message, COMPONENT);
            return Ok(());
        }
        if self.memory().importing.insert(volume.uid().to_owned()) {
            let world = Arc::clone(self);
            self.tracker.spawn(async move {
                let uid = volume.uid().to_owned();
                tokio::select! {
                    () = world.import(&volume, &claim) => {}
                    () = world.shutdown.cancelled() => {}
                }
                world.memory().importing.remove(&uid);
            });
        }
        Ok(())
    }

    fn show_import(&self, key: &Key, phase: &str, progress: &str) -> Result<(), Status> {
        let done = phase == "Succeeded";
        self.client.update_status(key, |volume| {
            let status = &mut volume["status"];
            status["phase"] = phase.into();
            status["progress"] = progress.into();
            status["claimName"] = (*key.name).into();
            let running = if done { ("False", "Completed") } else { ("True", "Pod is running") };
            status["conditions"] = json!([
                condition(
                    "Bound",
                    if done { "True" } else { "False" },
                    if done { "Bound" } else { "Pending" }
                ),
                condition("Ready", if done { "True" } else { "False" }, ""),
                condition("Running", running.0, running.1),
            ]);
            Ok(())
        })?;
        Ok(())
    }

    async fn import(self: &Arc<Self>, volume: &ObjectRef, claim: &Key) {
        let key = &volume.key;
        let labels =
            volume.value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect();
        let plan = self.driver.plan(volume.uid(), &labels);
        if let Err(error) =
            self.show_import(key, "ImportInProgress", "N/A").and_then(|()| self.importer(claim, "Running"))
        {
            tracing::debug!(data_volume = %key, %error, "a DataVolume is gone while it is imported");
            return;
        }
        let url =
            volume.value.pointer("/spec/source/registry/url").and_then(Value::as_str).unwrap_or_default();
        let result = match plan.image_pull_error {
            Some(why) => Err(why),
            None if !self.images.is_real() => {
                tokio::time::sleep(if plan.pull.is_zero() { PLAYED } else { plan.pull }).await;
                Ok(())
            }
            None => match self.images.find(url) {
                Some(image) => self.fill(volume, &image).await,
                None => Err(format!("image {url} is not in the store")),
            },
        };
        match result.map(|()| self.finish(volume, claim)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(data_volume = %key, %error, "a DataVolume is gone at its end"),
            Err(why) => {
                let message = format!("Unable to process data: {why}");
                self.say(&volume.value, "Warning", "Error", &message, COMPONENT);
                self.again_in(key, AGAIN);
            }
        }
    }

    fn importer(&self, claim: &Key, phase: &str) -> Result<(), Status> {
        self.client.update(claim, |claim| {
            object::meta_mut(claim).entry("annotations").or_insert_with(|| json!({}))[IMPORTER] =
                phase.into();
            Ok(())
        })?;
        Ok(())
    }

    fn finish(&self, volume: &ObjectRef, claim: &Key) -> Result<(), Status> {
        self.importer(claim, "Succeeded")?;
        self.client.update(claim, |claim| {
            let name = format!("pvc-{}", object::uid(claim));
            object::child_mut(claim, "spec").insert("volumeName".into(), name.into());
            object::meta_mut(claim).entry("annotations").or_insert_with(|| json!({}))
                ["pv.kubernetes.io/bind-completed"] = "yes".into();
            Ok(())
        })?;
        self.client.update_status(claim, |claim| {
            let modes = object::at(claim, "spec.accessModes").cloned().unwrap_or_default();
            let storage = object::at(claim, "spec.resources.requests.storage").cloned().unwrap_or_default();
            claim["status"] =
                json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": storage}});
            Ok(())
        })?;
        self.show_import(&volume.key, "Succeeded", "100.0%")?;
        let message = format!("Successfully imported into PVC {}", claim.name);
        self.client.event(&volume.value, "Normal", "ImportSucceeded", &message, COMPONENT);
        Ok(())
    }

    /// Makes the raw disk beside its place and moves it there when it is whole.
    async fn fill(self: &Arc<Self>, volume: &ObjectRef, image: &Image) -> Result<(), String> {
        let key = &volume.key;
        let directory = directory(self, &key.namespace, &key.name);
        let said =
            |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", directory.display());
        tokio::fs::create_dir_all(&directory).await.map_err(|e| said("make", e))?;
        let fresh = directory.join("disk.img.new");
        self.convert(key, image, &fresh).await?;
        let wanted = volume.value.pointer("/spec/storage/resources/requests/storage");
        let wanted = wanted.or_else(|| volume.value.pointer("/spec/pvc/resources/requests/storage"));
        if let Some(wanted) = wanted.and_then(bytes) {
            let file =
                tokio::fs::OpenOptions::new().write(true).open(&fresh).await.map_err(|e| said("open", e))?;
            let length = file.metadata().await.map_err(|e| said("look at", e))?.len();
            if wanted > length {
                file.set_len(wanted).await.map_err(|e| said("grow", e))?;
            }
        }
        for name in ["vmlinux", "initrd.img", "cmdline"] {
            let (from, to) = (image.directory.join(name), directory.join(name));
            if from.is_file() {
                tokio::fs::copy(&from, &to).await.map_err(|e| said("copy a boot file into", e))?;
            }
        }
        tokio::fs::rename(&fresh, directory.join("disk.img")).await.map_err(|e| said("rename in", e))
    }

    async fn convert(&self, key: &Key, image: &Image, to: &Path) -> Result<(), String> {
        let mut child = tokio::process::Command::new("qemu-img")
            .args(["convert", "-p", "-f", image.format.as_str(), "-O", "raw"])
            .arg(&image.disk)
            .arg(to)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot run qemu-img: {error}"))?;
        let mut stdout = child.stdout.take().expect("it was asked to be piped");
        let mut buffer = [0_u8; 256];
        let mut shown = String::new();
        while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..read]);
            let Some(progress) = text.rsplit('(').next().and_then(|last| last.split_once('/')) else {
                continue;
            };
            let progress = format!("{}%", progress.0.trim());
            if progress != shown && progress.len() < 8 {
                self.show_import(key, "ImportInProgress", &progress).map_err(|error| error.to_string())?;
                shown = progress;
            }
        }
        let output = child.wait_with_output().await.map_err(|error| format!("qemu-img is lost: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("qemu-img failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let now = object::now();
    let mut value =
        json!({"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now});
    if !reason.is_empty() {
        value["reason"] = reason.into();
    }
    value
}

/// The claim of a DataVolume.
fn claim_for(volume: &Value) -> Value {
    let asked = volume.pointer("/spec/storage").or_else(|| volume.pointer("/spec/pvc"));
    let asked = asked.cloned().unwrap_or_default();
    // Files of this one host: every pod of it can read them.
    let modes = asked.get("accessModes").cloned().unwrap_or_else(|| json!(["ReadWriteMany"]));
    let mut annotations = volume.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    annotations["cdi.kubevirt.io/storage.contentType"] = "kubevirt".into();
    annotations["cdi.kubevirt.io/storage.usePopulator"] = "true".into();
    annotations[IMPORTER] = "Pending".into();
    let mut labels = volume.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    labels["alerts.k8s.io/KubePersistentVolumeFillingUp"] = "disabled".into();
    labels["app"] = "containerized-data-importer".into();
    for (key, value) in
        [("app.kubernetes.io/component", "storage"), ("app.kubernetes.io/managed-by", "cdi-controller")]
    {
        if labels.get(key).is_none() {
            labels[key] = value.into();
        }
    }
    json!({
        "metadata": {
            "name": object::name(volume),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [object::controller_reference(volume)],
        },
        "spec": {
            "accessModes": modes,
            "resources": asked.get("resources").cloned().unwrap_or_else(|| json!({})),
            "storageClassName": asked.get("storageClassName").cloned().unwrap_or_else(|| json!(STORAGE_CLASS)),
            "volumeMode": asked.get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
            "dataSourceRef": {
                "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource",
                "name": format!("volume-import-source-{}", object::uid(volume)),
            },
        },
    })
}
