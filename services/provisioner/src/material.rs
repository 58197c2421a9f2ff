//! What a machine's objects hold: rendered user-data and manifests. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Secret;
use lab_domain::{Digest, disk::DiskReason, token::TokenKey};
use lab_guest::UserData;
use lab_kubevirt::{
    Installation, VirtualMachine,
    manifest::{Machine, RootDisk, Subject},
};

use crate::{error::Error, known::Known};

/// Everything that goes into one machine.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) known: &'a Known,
    pub(crate) machine: &'a lab_catalog::Machine,
    pub(crate) key: &'a TokenKey,
    pub(crate) resolvers: &'a [IpAddr],
}

impl Material<'_> {
    fn subject(&self) -> Subject {
        Subject {
            installation: self.installation.clone(),
            session: self.known.id,
            machine: self.machine.name.clone(),
            lab: self.known.lab.clone(),
        }
    }

    /// The guest's name for itself, and its user-data.
    fn guest(&self) -> Result<(String, UserData), Error> {
        let token = self.key.token(self.known.id, &self.machine.name);
        let guest = lab_guest::Machine {
            session: self.known.id,
            machine: &self.machine.name,
            lab: &self.known.lab,
            token: &token,
            prepare_timeout: self.known.prepare_limit,
            files: &self.machine.files,
            prepare: self.machine.prepare.as_deref(),
        };
        let userdata = lab_guest::render(&guest)
            .map_err(|source| Error::Render { session: self.known.id, source: Box::new(source) })?;
        Ok((guest.hostname(), userdata))
    }

    pub(crate) fn secret(&self) -> Result<Secret, Error> {
        let (_, UserData { user_data, network_data }) = self.guest()?;
        Ok(self.subject().secret(&self.key.id(), &user_data, network_data.as_deref()))
    }

    pub(crate) fn virtual_machine(
        &self,
        disk: RootDisk,
        disk_reason: DiskReason,
        image: Digest,
        token_key: String,
    ) -> Result<VirtualMachine, Error> {
        let (hostname, userdata) = self.guest()?;
        let machine = Machine {
            subject: self.subject(),
            lab_digest: self.known.lab_digest.clone(),
            image,
            hostname,
            cpus: self.machine.cpus,
            memory: self.machine.memory.to_string(),
            disk,
            disk_reason,
            token_key,
            resolvers: self.resolvers.to_vec(),
            session_network: None,
        };
        Ok(machine.virtual_machine(userdata.network_data.is_some()))
    }
}
