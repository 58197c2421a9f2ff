//! A loopback address for each machine, so that every one of them has its own port 8899.
//!
//! 127.0.0.0/16 is left alone (other software of the host lives there); an address counts as free when a
//! listener could be bound to it, whoever else is on this host.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use rand::Rng as _;

/// The port where the agent of a guest answers.
pub const AGENT_PORT: u16 = 8899;

/// Tries before we say that this host has no address left: of 16.6 million, so many taken in a row means trouble.
const TRIES: usize = 64;

/// No address could be had.
#[derive(Debug, thiserror::Error)]
#[error("no free loopback address for port {AGENT_PORT} after {TRIES} tries")]
pub struct AddressError {
    #[source]
    last: std::io::Error,
}

/// Picks a random address on which the agent's port is free, and which `taken` does not name.
pub(crate) fn pick(taken: impl Fn(Ipv4Addr) -> bool) -> Result<Ipv4Addr, AddressError> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..TRIES {
        let address = random();
        if taken(address) {
            continue;
        }
        match probe(address) {
            Ok(()) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(AddressError { last })
}

fn random() -> Ipv4Addr {
    let mut rng = rand::rng();
    Ipv4Addr::new(127, rng.random_range(1..=254), rng.random_range(0..=255), rng.random_range(1..=254))
}

fn probe(address: Ipv4Addr) -> Result<(), std::io::Error> {
    TcpListener::bind(SocketAddrV4::new(address, AGENT_PORT)).map(drop)
}

/// A hardware address that is ours alone: locally administered, QEMU's prefix, the rest from the loopback address.
pub(crate) fn mac_of(address: Ipv4Addr) -> String {
    let [_, b, c, d] = address.octets();
    format!("52:54:00:{b:02x}:{c:02x}:{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_outside_the_range_of_other_software_and_free() {
        for _ in 0..50 {
            let address = pick(|_| false).unwrap();
            assert!(address.is_loopback());
            assert_ne!(address.octets()[1], 0, "127.0.0.0/16 is not ours");
        }
    }

    #[test]
    fn address_with_a_listener_is_not_taken_twice() {
        let address = pick(|_| false).unwrap();
        let held = TcpListener::bind(SocketAddrV4::new(address, AGENT_PORT)).unwrap();
        assert!(probe(address).is_err());
        drop(held);
    }

    #[test]
    fn hardware_address_follows_the_loopback_address() {
        assert_eq!(mac_of(Ipv4Addr::new(127, 10, 0, 255)), "52:54:00:0a:00:ff");
    }
}
