//! Setting an environment up, twice, and over another one.

use lab_api::{StoreError, setup::Error};
use lab_testkit::{Nats, Postgres};

use crate::{kube::Kube, world::setup_args};

#[tokio::test]
async fn setting_up_twice_changes_nothing_and_another_installation_is_refused() {
    lab_kit::install_tls();
    let (pg, nats, kube) =
        (Postgres::start().await.unwrap(), Nats::start().await.unwrap(), Kube::start().await);
    let args = setup_args(&pg, &nats, &kube, "dev");
    let first = lab_api::setup::run(&args).await.unwrap();
    assert_eq!(lab_api::setup::run(&args).await.unwrap(), first);

    let other_environment = setup_args(&pg, &nats, &kube, "prod");
    let refused = lab_api::setup::run(&other_environment).await;
    assert!(matches!(refused, Err(Error::Store(StoreError::OtherEnvironment { .. }))), "{refused:?}");

    let restored = Postgres::start().await.unwrap();
    let refused = lab_api::setup::run(&setup_args(&restored, &nats, &kube, "dev")).await;
    assert!(matches!(refused, Err(Error::Bus(lab_bus::Error::OtherInstallation { .. }))), "{refused:?}");

    let (third, broker) = (Postgres::start().await.unwrap(), Nats::start().await.unwrap());
    let refused = lab_api::setup::run(&setup_args(&third, &broker, &kube, "dev")).await;
    assert!(matches!(refused, Err(Error::OtherInstallation { .. })), "{refused:?}");
}
