//! TCP connections of a VM's processes, seen and cut from the outside.
//!
//! A connection is cut by taking a copy of the process's own socket (`pidfd_getfd`) and shutting it down: both ends
//! see the connection end, as on a broken network path, and the program is told nothing else. The kernel allows it to
//! an ancestor with ptrace rights; where it does not, the answer says so.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::tree::{Live, descendants};
use crate::vm::{Connection, CutReport};

/// A socket of a process.
struct Held {
    pid: i32,
    fd: i32,
    connection: Connection,
}

/// The established TCP connections of all descendants of this process.
pub(crate) fn connections() -> Vec<Connection> {
    let mut found: Vec<Connection> = held().into_iter().map(|held| held.connection).collect();
    found.sort();
    found.dedup();
    found
}

/// Shuts down these connections.
pub(crate) fn cut(wanted: &[Connection]) -> CutReport {
    let mut report = CutReport::default();
    for held in held().iter().filter(|held| wanted.contains(&held.connection)) {
        match shut(held) {
            Ok(()) => report.cut += 1,
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::BADF | rustix::io::Errno::NOTCONN) => {}
            Err(error) => report.refused = Some(format!("pidfd_getfd of process {}: {error}", held.pid)),
        }
    }
    report
}

fn shut(held: &Held) -> rustix::io::Result<()> {
    let Some(pid) = Pid::from_raw(held.pid) else { return Err(rustix::io::Errno::SRCH) };
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(&process, held.fd, PidfdGetfdFlags::empty())?;
    // The descriptor may have become another socket since it was listed.
    let peer = rustix::net::getpeername(&socket)?.and_then(|peer| SocketAddr::try_from(peer).ok());
    if peer.map(plain) != Some(held.connection.remote) {
        return Err(rustix::io::Errno::NOTCONN);
    }
    rustix::net::shutdown(&socket, Shutdown::Both)
}

fn held() -> Vec<Held> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let by_inode = established();
    let mut found = Vec::new();
    for Live { pid, .. } in descendants(own) {
        let Ok(descriptors) = Process::new(pid).and_then(|process| process.fd()) else { continue };
        for descriptor in descriptors.filter_map(Result::ok) {
            let FDTarget::Socket(inode) = descriptor.target else { continue };
            if let Some(connection) = by_inode.get(&inode) {
                found.push(Held { pid, fd: descriptor.fd, connection: connection.clone() });
            }
        }
    }
    found
}

/// Established TCP connections of this network namespace, by inode.
fn established() -> BTreeMap<u64, Connection> {
    let four = procfs::net::tcp().unwrap_or_default();
    let six = procfs::net::tcp6().unwrap_or_default();
    four.into_iter()
        .chain(six)
        .filter(|entry| entry.state == TcpState::Established)
        .map(|entry| {
            let connection = Connection { local: plain(entry.local_address), remote: plain(entry.remote_address) };
            (entry.inode, connection)
        })
        .collect()
}

/// An IPv4 address in IPv6 dress as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, |four| SocketAddr::new(four.into(), address.port())),
        IpAddr::V4(_) => address,
    }
}
