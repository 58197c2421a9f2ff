//! What tests stand on stands by itself.

use std::time::Duration;

use lab_testkit::{Nats, Postgres, Proxy, wait_for};
use sqlx::Connection as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn each_test_has_an_empty_database_of_its_own() {
    let (one, two) = tokio::join!(Postgres::start(), Postgres::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let mut first = sqlx::PgConnection::connect(one.url()).await.unwrap();
    let mut second = sqlx::PgConnection::connect(two.url()).await.unwrap();
    sqlx::query("CREATE TABLE t (n int)").execute(&mut first).await.unwrap();
    assert!(sqlx::query("SELECT n FROM t").fetch_all(&mut first).await.unwrap().is_empty());
    assert!(sqlx::query("SELECT n FROM t").fetch_all(&mut second).await.is_err());
}

#[tokio::test]
async fn a_broker_comes_back_on_its_port() {
    let mut nats = Nats::start().await.unwrap();
    let port = nats.port();
    nats.kill();
    wait_for("the port to be free", LIMIT, async || TcpStream::connect(("127.0.0.1", port)).await.is_err())
        .await;
    nats.restart().await.unwrap();
    assert_eq!(nats.port(), port);
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
}

#[tokio::test]
async fn a_configuration_that_the_broker_refuses_is_shown() {
    let error = Nats::start_with("no such thing {").await.unwrap_err();
    assert!(format!("{error:#}").contains("Parse error"), "{error:#}");
}

#[tokio::test]
async fn a_cut_ends_connections_and_lets_none_in_until_it_is_mended() {
    let echo = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let proxy = Proxy::start(echo.local_addr().unwrap()).await.unwrap();
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
        }
    });
    let echoes = async || {
        let Ok(mut stream) = TcpStream::connect(proxy.address()).await else { return None };
        stream.write_all(b"x").await.ok()?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await.ok()?;
        Some(stream)
    };
    let mut open = echoes().await.unwrap();
    proxy.cut();
    let mut byte = [0];
    assert_eq!(tokio::time::timeout(LIMIT, open.read(&mut byte)).await.unwrap().unwrap_or(0), 0);
    assert!(echoes().await.is_none());
    proxy.mend();
    wait_for("the proxy to forward again", LIMIT, async || echoes().await.is_some()).await;
}
