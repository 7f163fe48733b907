//! In the local mode nothing listens on anything but loopback.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Options, scenario};

use super::jobs::counting;

/// A socket that takes what comes from anywhere.
struct Open {
    inode: String,
    address: IpAddr,
    port: u16,
}

/// The first field of these is the kernel's form of an address: bytes in the machine's order, four at a time.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (host, port) = text.split_once(':')?;
    let words: Vec<u32> = (0..host.len() / 8)
        .map(|n| u32::from_str_radix(&host[8 * n..8 * n + 8], 16).ok().map(u32::to_ne_bytes).map(u32::from_be_bytes))
        .collect::<Option<_>>()?;
    let host = match words.as_slice() {
        [v4] => Ipv4Addr::from(*v4).into(),
        [a, b, c, d] => {
            let whole = [a, b, c, d].iter().fold(0_u128, |all, word| (all << 32) | u128::from(**word));
            Ipv6Addr::from(whole).to_canonical()
        }
        _ => return None,
    };
    Some((host, u16::from_str_radix(port, 16).ok()?))
}

/// Sockets of the network of process `pid` that listen, or take datagrams of anybody.
fn open(pid: i32) -> Result<Vec<Open>> {
    // A TCP socket that listens is in state 0A; one of UDP that has no peer in state 07.
    let mut all = Vec::new();
    for (table, state) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else { continue };
        for line in text.lines().skip(1) {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(told), Some(inode)) = (parts.get(1), parts.get(3), parts.get(9)) else { continue };
            let (address, port) = address(local).with_context(|| line.to_owned())?;
            if *told == state {
                all.push(Open { inode: (*inode).to_owned(), address, port });
            }
        }
    }
    Ok(all)
}

fn sockets(pid: i32) -> BTreeSet<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_listens_on_loopback_alone() -> Result<()> {
    scenario("loopback", Options::speed(10.0), async |dev| {
        dev.submit(&counting(dev, "count", 4)?).await?;
        dev.phase("count", "running").await?;
        let own = dev.pid().and_then(|pid| i32::try_from(pid).ok()).context("dev runs")?;
        let workers = dev.workers();
        ensure!(workers.len() >= 4, "supervisors, agents and programs run: {workers:?}");
        let mut listening = 0;
        for pid in workers.iter().map(|process| process.pid).chain([own]) {
            let held = sockets(pid);
            for socket in open(pid)?.into_iter().filter(|socket| held.contains(&socket.inode)) {
                let Open { address, port, .. } = socket;
                ensure!(address.is_loopback(), "process {pid} of {workers:?} listens on {address}, port {port}");
                listening += 1;
            }
        }
        // The functions, the TPU API, and a metadata server and a bell for each worker.
        ensure!(listening >= 4, "only {listening} were found");
        dev.command("count", "cancel", &serde_json::json!({})).await?;
        dev.phase("count", "cancelled").await?;
        Ok(())
    })
    .await
}
