//! Which addresses are public: webhooks are told there alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Host;

/// False for a host that can never lead to the public internet: an address that is not of it, or this machine's own name.
/// Where another name leads is known only when it is resolved.
pub fn may_be_public(host: &Host<&str>) -> bool {
    match host {
        Host::Ipv4(v4) => is_public_v4(*v4),
        Host::Ipv6(v6) => is_public_v6(*v6),
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name != "localhost" && !name.ends_with(".localhost")
        }
    }
}

/// True for addresses of the public internet, by the special-purpose registries of IANA.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        // Shared by carriers; IETF protocol assignments; 6to4 relays; benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        // IPv4-mapped, NAT64 and 6to4 lead to the IPv4 address in them.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(embedded(high, low))
        }
        // Teredo, documentation.
        [0x2001, 0 | 0x0db8, ..] => false,
        // Everything else that is public is in 2000::/3: no loopback, unique local, link local, multicast.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn public_and_other_addresses() {
        for public in
            ["8.8.8.8", "93.184.216.34", "100.128.0.1", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "198.18.0.1",
            "192.0.2.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }
}
