//! The one set-up step: database, streams, ConfigMap, all with the same installation id. It creates only, and stops
//! if another id is there.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use lab_bus::{Bus, Identity};
use lab_domain::{Environment, InstallationId};
use lab_kit::installation::{CONFIG_MAP_KEY, config_map_name};
use lab_kubevirt::labels;
use secrecy::ExposeSecret as _;

use crate::{
    config,
    store::{self, Store},
};

/// Why the environment could not be set up. Nothing of another installation was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments.
    #[error("cannot read the configuration")]
    Config(#[source] config::Error),
    /// The database.
    #[error("cannot set up the database")]
    Store(#[source] store::Error),
    /// The broker.
    #[error("cannot set up the streams")]
    Bus(#[source] lab_bus::Error),
    /// The cluster's client.
    #[error("cannot reach the cluster")]
    Client(#[source] lab_kit::kube::Error),
    /// The ConfigMap.
    #[error("cannot {operation} ConfigMap {name}")]
    ConfigMap {
        /// What was tried.
        operation: &'static str,
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace has an environment of this name already.
    #[error("ConfigMap {name} belongs to installation {found:?}, not to {expected}")]
    OtherInstallation {
        /// Which.
        name: String,
        /// In the cluster.
        found: String,
        /// Ours.
        expected: InstallationId,
    },
}

/// Sets the environment up.
///
/// # Errors
/// If a place cannot be reached or belongs to another installation.
pub async fn run(args: &config::Setup) -> Result<InstallationId, Error> {
    let url = config::read_secret(&args.database_url_file).map_err(Error::Config)?;
    let client = lab_kit::kube::client(&args.cluster).await.map_err(Error::Client)?;
    let metrics = lab_bus::Metrics::default();
    let bus = Bus::connect(args.nats.config(&args.environment, Identity::Setup, metrics))
        .await
        .map_err(Error::Bus)?;
    let store = Store::connect(url.expose_secret()).await.map_err(Error::Store)?;
    let installation = store.migrate(args.environment.as_str()).await.map_err(Error::Store)?;
    lab_bus::setup::streams(&bus, installation, args.nats_replicas).await.map_err(Error::Bus)?;
    config_map(client, &args.cluster.namespace, &args.environment, installation).await?;
    store.close().await;
    tracing::info!(environment = %args.environment, installation = %installation, "the environment is set up");
    Ok(installation)
}

async fn config_map(
    client: Client,
    namespace: &str,
    environment: &Environment,
    installation: InstallationId,
) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let name = config_map_name(environment);
    let failed = |operation: &'static str| {
        let name = name.clone();
        move |source: kube::Error| Error::ConfigMap { operation, name, source: Box::new(source) }
    };
    let wanted = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(
                [
                    (labels::ENVIRONMENT.to_owned(), environment.to_string()),
                    (labels::INSTALLATION.to_owned(), installation.to_string()),
                    (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_VALUE.to_owned()),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        data: Some([(CONFIG_MAP_KEY.to_owned(), installation.to_string())].into()),
        ..ConfigMap::default()
    };
    let params = PostParams { field_manager: Some(labels::field_manager("setup")), ..PostParams::default() };
    match maps.create(&params, &wanted).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(failed("create")(error)),
    }
    let found = maps.get(&name).await.map_err(failed("read"))?;
    let found = found.data.unwrap_or_default().remove(CONFIG_MAP_KEY).unwrap_or_default();
    if found == installation.to_string() {
        Ok(())
    } else {
        Err(Error::OtherInstallation { name, found, expected: installation })
    }
}
