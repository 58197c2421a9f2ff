//! What a machine is made of: from an instance, its Secrets and its disks to what the driver needs to know.

use std::collections::BTreeMap;

use base64::Engine as _;
use lab_machine::{EmptyDisk, Format, RootDisk, Seed, Spec};
use serde_json::{Value, json};

use super::template::bytes;
use super::vmi::volumes;
use super::work::World;
use super::{data_volume, images, pod};
use crate::object;
use crate::resource::SECRETS;
use crate::store::{Key, ObjectRef};

impl World {
    /// What the driver needs to know, or why it cannot be told yet.
    pub(super) fn spec(&self, vmi: &ObjectRef) -> Result<Spec, String> {
        let value = &vmi.value;
        let guest = object::at(value, "spec.domain.memory.guest").and_then(bytes).unwrap_or(512 << 20);
        let number = |key: &str| {
            object::at(value, &format!("spec.domain.cpu.{key}")).and_then(Value::as_u64).unwrap_or(1)
        };
        let cpus = u32::try_from(number("cores") * number("sockets") * number("threads")).unwrap_or(1);
        let empty_disks = volumes(value)
            .filter_map(|volume| {
                let bytes = bytes(volume.pointer("/emptyDisk/capacity")?)?;
                Some(EmptyDisk { name: object::text_at(volume, "name").to_owned(), bytes })
            })
            .collect();
        Ok(Spec {
            uid: vmi.uid().to_owned(),
            namespace: vmi.key.namespace.to_string(),
            name: vmi.key.name.to_string(),
            labels: labels(value),
            cpus,
            memory_mib: guest >> 20,
            root: self.root(vmi)?,
            empty_disks,
            seed: self.seed(vmi),
        })
    }

    /// The first disk of the instance.
    fn root(&self, vmi: &ObjectRef) -> Result<RootDisk, String> {
        if !self.images.is_real() {
            return Ok(RootDisk::None);
        }
        let disks = object::at(&vmi.value, "spec.domain.devices.disks").and_then(Value::as_array);
        let mut names = disks.into_iter().flatten().map(|disk| object::text_at(disk, "name"));
        let by_name = |name: &str| volumes(&vmi.value).find(|volume| object::text_at(volume, "name") == name);
        let boots =
            |volume: &&Value| volume.get("containerDisk").is_some() || pod::claim_of(volume).is_some();
        let Some(volume) = names.find_map(|name| by_name(name).filter(boots)) else {
            return Ok(RootDisk::None);
        };
        if let Some(reference) = volume.pointer("/containerDisk/image").and_then(Value::as_str) {
            let image = self
                .images
                .find(reference)
                .ok_or_else(|| format!("image {reference} is not in the store"))?;
            return Ok(RootDisk::Overlay { base: image.disk, format: image.format, boot: image.boot });
        }
        let (claim, _) = pod::claim_of(volume).ok_or("the root volume has no disk")?;
        let directory = data_volume::directory(self, &vmi.key.namespace, claim);
        let disk = directory.join("disk.img");
        if !disk.is_file() {
            return Err(format!("claim \"{claim}\" holds no disk.img"));
        }
        let (format, boot) = (Format::Raw, images::boot(&directory));
        Ok(if volume.get("ephemeral").is_some() {
            RootDisk::Overlay { base: disk, format, boot }
        } else {
            RootDisk::InPlace { path: disk, format, boot }
        })
    }

    fn seed(&self, vmi: &ObjectRef) -> Seed {
        let hostname = match object::text_at(&vmi.value, "spec.hostname") {
            "" => object::name(&vmi.value),
            named => named,
        };
        let mut seed = Seed {
            meta_data: json!({"instance-id": vmi.uid(), "local-hostname": hostname}).to_string(),
            ..Seed::default()
        };
        for volume in volumes(&vmi.value) {
            let Some(source) = volume.get("cloudInitNoCloud") else { continue };
            let from = |reference: &str, keys: [&str; 2]| {
                let name = source.get(reference)?.get("name")?.as_str()?;
                let secret = self.client.find(&Key::new(&SECRETS, &vmi.key.namespace, name))?;
                let data = keys.into_iter().find_map(|key| secret.value.get("data")?.get(key)?.as_str())?;
                decode(data)
            };
            let inline = |plain: &str, encoded: &str| {
                let text = source.get(plain).and_then(Value::as_str).map(str::to_owned);
                text.or_else(|| decode(source.get(encoded)?.as_str()?))
            };
            let user =
                from("secretRef", ["userdata", "userData"]).or_else(|| inline("userData", "userDataBase64"));
            let network = from("networkDataSecretRef", ["networkdata", "networkData"])
                .or_else(|| inline("networkData", "networkDataBase64"));
            seed.user_data = user.unwrap_or_default();
            seed.network_data = network;
        }
        seed
    }
}

/// The labels that rules of played machines match on.
pub(super) fn labels(vmi: &Value) -> BTreeMap<String, String> {
    let labels = vmi.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn decode(text: &str) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    String::from_utf8(bytes).ok()
}
