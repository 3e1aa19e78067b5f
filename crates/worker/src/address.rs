//! Which address a host in a URL means, and whether a request may go there.
//!
//! A job's publisher must not reach what only this machine reaches: its own ports, the network it stands in, the
//! metadata service of its cloud. What decides is the address, never the name: `io::http` asks here for each address
//! that a name resolves to, and once more for the one that it is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the host of a URL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// To be resolved.
    Name(String),
}

/// Ranges of IPv4 that are not the public internet (IANA's special-purpose registry), and what they are.
const V4: [(Ipv4Addr, u32, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a provider's own network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, with a cloud's metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "set aside for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "set aside for protocols"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Ranges of IPv6 that are refused, and what they are. What is not in 2000::/3 is refused without a row here.
const V6: [(Ipv6Addr, u32, &str); 16] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 1), 128, "this machine"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 128, "this machine"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4 address in IPv6"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, "an IPv4 address in IPv6"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "NAT64, which leads into IPv4"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "NAT64, which leads into IPv4"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "for discarding"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "Teredo, which leads into IPv4"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "set aside for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4, which leads into IPv4"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Why `address` is not of the public internet; none: it is.
pub fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let within =
                |net: Ipv4Addr, bits: u32| (address.to_bits() ^ net.to_bits()) >> (32 - bits) == 0;
            V4.iter().find(|(net, bits, _)| within(*net, *bits)).map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) => {
            let within =
                |net: Ipv6Addr, bits: u32| (address.to_bits() ^ net.to_bits()) >> (128 - bits) == 0;
            let row =
                V6.iter().find(|(net, bits, _)| within(*net, *bits)).map(|(_, _, what)| *what);
            let is_global = address.segments()[0] & 0xe000 == 0x2000;
            row.or((!is_global).then_some("not of the public internet"))
        }
    }
}

/// Reads the host of a URL as browsers do: `127.1`, `2130706433`, `0x7f.1` and `0177.0.0.1` are all 127.0.0.1, so
/// that no spelling is left to a resolver's taste.
///
/// # Errors
/// Neither a name nor an address.
pub fn host(text: &str) -> Result<Host, String> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        let address: Ipv6Addr =
            inner.parse().map_err(|_| format!("`{text}` is no IPv6 address"))?;
        return Ok(Host::Address(address.into()));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 253 || !name.chars().all(is_name) {
        return Err(format!("`{text}` is no host"));
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if !is_number {
        return Ok(Host::Name(name.to_ascii_lowercase()));
    }
    let address = ipv4(name).ok_or_else(|| format!("`{text}` is no IPv4 address"))?;
    Ok(Host::Address(address.into()))
}

/// An address of one to four numbers, the last of which fills what is left.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = Vec::with_capacity(4);
    for part in text.split('.') {
        if parts.len() == 4 {
            return None;
        }
        parts.push(number(part)?);
    }
    let last = parts.pop()?;
    let mut bits: u64 = 0;
    for (at, part) in parts.iter().enumerate() {
        if *part > 255 {
            return None;
        }
        bits |= part << (24 - 8 * at);
    }
    let room = 1_u64 << (32 - 8 * parts.len());
    (last < room).then(|| Ipv4Addr::from_bits(u32::try_from(bits | last).unwrap_or(u32::MAX)))
}

/// Decimal, octal with a leading 0, hexadecimal with a leading 0x.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.is_ascii() {
        return None;
    }
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        [..] => (text, 10),
    };
    if digits.is_empty() {
        return Some(0);
    }
    if digits.len() > 16 || digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok().filter(|number| *number <= u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_allowed() {
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "5f00::1",
            "::ffff:0:7f00:1",
        ];
        for text in refused {
            assert!(refusal(text.parse().unwrap()).is_some(), "{text} was allowed");
        }
        let allowed = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "2003::1",
            "3ffe::1",
        ];
        for text in allowed {
            assert_eq!(refusal(text.parse().unwrap()), None, "{text} was refused");
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address_it_means() {
        let loopback = [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7F.1",
            "0177.0.0.1",
            "0x7f.0x0.0x0.0x1",
            "00177.0.0.01",
        ];
        for text in loopback {
            let expected = Ok(Host::Address(Ipv4Addr::LOCALHOST.into()));
            assert_eq!(host(text), expected, "{text}");
        }
        let metadata = Ok(Host::Address(Ipv4Addr::new(169, 254, 169, 254).into()));
        for text in ["0xa9fea9fe", "2852039166", "169.254.43518", "0251.0376.0251.0376"] {
            assert_eq!(host(text), metadata, "{text}");
        }
        let mapped = Ok(Host::Address("::ffff:127.0.0.1".parse().unwrap()));
        assert_eq!(host("[::ffff:127.0.0.1]"), mapped);
        assert_eq!(host("[0:0:0:0:0:ffff:7f00:1]"), mapped);
        assert_eq!(host("0"), Ok(Host::Address(Ipv4Addr::UNSPECIFIED.into())));
        assert_eq!(host("0x"), Ok(Host::Address(Ipv4Addr::UNSPECIFIED.into())));
    }

    #[test]
    fn what_is_neither_a_name_nor_an_address_is_refused() {
        let bad = [
            "",
            ".",
            "256.1.1.1",
            "1.2.3.4.5",
            "4294967296",
            "08.1.1.1",
            "a..1",
            "0x100000000",
            "99999999999999999999",
            "a b",
            "a%2e",
            "exa\u{ff11}mple",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "[]",
            "foo.0x7f",
            "1..1",
        ];
        for text in bad {
            assert!(host(text).is_err(), "{text}: {:?}", host(text));
        }
        for name in
            ["example.com", "EXAMPLE.com.", "a_b.example", "1.example", "localhost", "0x7f.com"]
        {
            assert!(matches!(host(name), Ok(Host::Name(_))), "{name}");
        }
    }
}
