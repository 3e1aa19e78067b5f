//! The lines that tell a newcomer what to do next. They name no address and no user that does not work.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use broker::io::first_user::FirstUser;

/// What the lines are made of.
pub(super) struct Banner<'a> {
    /// Where clients are listened to.
    pub(super) address: SocketAddr,
    /// The same under TLS.
    pub(super) sealed: Option<SocketAddr>,
    /// Whether `guest` has the password that everybody knows.
    pub(super) is_guest_known: bool,
    /// Whether there is no user beside that one.
    pub(super) is_guest_alone: bool,
    /// The user that was made at this start, with a password that is told here and nowhere else.
    pub(super) drawn: Option<&'a FirstUser>,
    /// Users that may come from loopback only.
    pub(super) loopback_users: &'a [String],
    pub(super) data_dir: &'a Path,
    /// How the program was called.
    pub(super) program: &'a str,
}

impl Banner<'_> {
    /// The first line is what scripts wait for.
    pub(super) fn text(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let (here, program) = (self.here(), self.program);
        let is_guest_bound = self.loopback_users.iter().any(|user| user == "guest");
        let can_guest_come = !is_guest_bound || here.ip().is_loopback();
        let is_open_to_others = !self.address.ip().is_loopback();
        let url = match self.is_guest_known && can_guest_come {
            true => format!("amqp://guest:guest@{here}"),
            false => format!("amqp://{here}"),
        };
        let mut text = format!(
            "Millrace {version} is ready: AMQP 0-9-1 on {url}\nData directory: {}\n",
            self.data_dir.display()
        );
        if let Some(sealed) = self.sealed {
            text.push_str(&format!("Under TLS: amqps://{sealed}\n"));
        }
        if self.is_guest_known && can_guest_come {
            text.push_str(&format!(
                "Publish a message:  echo hello | {program} publish --url {url} --queue hello\n\
                 Consume it:         {program} consume --url {url} --queue hello --count 1\n"
            ));
        }
        if let Some(FirstUser { name, password }) = self.drawn {
            text.push_str(&format!(
                "User {name} was made with the password {password} and is an administrator who may log in from \
                 any machine. Keep the password: it is not shown again\n"
            ));
        }
        if self.is_guest_alone && is_guest_bound && is_open_to_others {
            text.push_str(
                "Nobody can log in from other machines: user guest may log in from this machine only. To change \
                 that, start with a new data directory, default_user and default_pass (MILLRACE_DEFAULT_USER, \
                 MILLRACE_DEFAULT_PASS)\n",
            );
        }
        text
    }

    /// The address as it is reached from this machine.
    fn here(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        SocketAddr::new(ip, self.address.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(address: &str, is_guest_known: bool, loopback_users: &[&str]) -> String {
        let loopback_users: Vec<_> = loopback_users.iter().map(|user| (*user).to_owned()).collect();
        let banner = Banner {
            address: address.parse().unwrap(),
            sealed: None,
            is_guest_known,
            is_guest_alone: is_guest_known,
            drawn: None,
            loopback_users: &loopback_users,
            data_dir: Path::new("/data"),
            program: "millrace",
        };
        banner.text()
    }

    #[test]
    fn the_first_line_has_an_address_that_guest_can_use_from_here() {
        let loopback = text("127.0.0.1:5672", true, &["guest"]);
        assert!(loopback.contains("on amqp://guest:guest@127.0.0.1:5672\n"), "{loopback}");
        assert!(!loopback.contains("other machines"), "{loopback}");
        let all = text("0.0.0.0:5672", true, &["guest"]);
        assert!(all.contains("on amqp://guest:guest@127.0.0.1:5672\n"), "{all}");
        assert!(all.contains("Nobody can log in from other machines"), "{all}");
        assert!(text("[::]:5672", true, &["guest"]).contains("@[::1]:5672\n"));
    }

    #[test]
    fn guest_is_not_named_where_it_cannot_come_or_is_not() {
        let outside = text("10.0.0.5:5672", true, &["guest"]);
        assert!(outside.contains("on amqp://10.0.0.5:5672\n"), "{outside}");
        assert!(outside.contains("MILLRACE_DEFAULT_USER"), "{outside}");
        let other = text("0.0.0.0:5672", false, &["guest"]);
        assert!(!other.contains("guest") && !other.contains("other machines"), "{other}");
        let free = text("10.0.0.5:5672", true, &[]);
        assert!(free.contains("on amqp://guest:guest@10.0.0.5:5672\n"), "{free}");
        assert!(!free.contains("other machines"), "{free}");
    }
}
