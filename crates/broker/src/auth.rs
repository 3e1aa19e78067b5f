//! Who may do what: one function, called for every verb, refusing by default.
//!
//! A permission is three regular expressions on names (configure, write, read) for a user in a vhost. Passive
//! declarations need none, as in RabbitMQ; everything else that names a queue or an exchange is in the table
//! of `needs`.

use amqp::{ReplyCode, TableRef, ValueRef};
use machine::Catalog;

use crate::errors::Failure;
use crate::limits;

/// What a client wants to do, with the names it is checked on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    DeclareExchange {
        exchange: &'a str,
        alternate: Option<&'a str>,
    },
    DeleteExchange {
        exchange: &'a str,
    },
    BindExchange {
        destination: &'a str,
        source: &'a str,
    },
    DeclareQueue {
        queue: &'a str,
        dead_letter: Option<&'a str>,
    },
    DeleteQueue {
        queue: &'a str,
    },
    BindQueue {
        queue: &'a str,
        exchange: &'a str,
    },
    /// `basic.consume`, `basic.get`, `queue.purge`.
    Read {
        queue: &'a str,
    },
    Publish {
        exchange: &'a str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Configure,
    Write,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource<'a> {
    Exchange(&'a str),
    Queue(&'a str),
}

type Need<'a> = (Right, Resource<'a>);

/// Everything a verb needs: the whole of the authorisation rules.
fn needs<'a>(verb: Verb<'a>) -> [Option<Need<'a>>; 3] {
    use Resource::{Exchange, Queue};
    use Right::{Configure, Read, Write};
    match verb {
        Verb::DeclareExchange { exchange, alternate } => [
            Some((Configure, Exchange(exchange))),
            alternate.map(|_| (Read, Exchange(exchange))),
            alternate.map(|alternate| (Write, Exchange(alternate))),
        ],
        Verb::DeleteExchange { exchange } => [Some((Configure, Exchange(exchange))), None, None],
        Verb::BindExchange { destination, source } => {
            [Some((Write, Exchange(destination))), Some((Read, Exchange(source))), None]
        }
        Verb::DeclareQueue { queue, dead_letter } => [
            Some((Configure, Queue(queue))),
            dead_letter.map(|_| (Read, Queue(queue))),
            dead_letter.map(|exchange| (Write, Exchange(exchange))),
        ],
        Verb::DeleteQueue { queue } => [Some((Configure, Queue(queue))), None, None],
        Verb::BindQueue { queue, exchange } => {
            [Some((Write, Queue(queue))), Some((Read, Exchange(exchange))), None]
        }
        Verb::Read { queue } => [Some((Read, Queue(queue))), None, None],
        Verb::Publish { exchange } => [Some((Write, Exchange(exchange))), None, None],
    }
}

/// Refuses what the user's permissions in the vhost do not allow.
pub(crate) fn allow(
    catalog: &Catalog,
    user: &str,
    vhost: &str,
    verb: Verb<'_>,
) -> Result<(), Failure> {
    let permissions = catalog.permissions(user, vhost);
    for (right, resource) in needs(verb).into_iter().flatten() {
        let (kind, name) = match resource {
            // The default exchange has no name: its rights are those of `amq.default`.
            Resource::Exchange("") => ("exchange", "amq.default"),
            Resource::Exchange(name) => ("exchange", name),
            Resource::Queue(name) => ("queue", name),
        };
        let is_allowed = permissions.is_some_and(|permissions| match right {
            Right::Configure => permissions.configure.allows(name),
            Right::Write => permissions.write.allows(name),
            Right::Read => permissions.read.allows(name),
        });
        if !is_allowed {
            let right = match right {
                Right::Configure => "configure",
                Right::Write => "write",
                Right::Read => "read",
            };
            let text = format!(
                "{right} access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'"
            );
            return Err(Failure::channel(ReplyCode::AccessRefused, text));
        }
    }
    Ok(())
}

/// What a client says to log in. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Credentials {{ user: {:?}, password: <hidden> }}", self.user)
    }
}

/// The login mechanism whose proof is a certificate.
pub(crate) const EXTERNAL: &str = "EXTERNAL";

/// The login mechanisms offered, those first that all clients know. A client whose certificate was verified may also
/// log in with that.
pub(crate) fn mechanisms(is_certified: bool) -> &'static str {
    if is_certified { "PLAIN AMQPLAIN EXTERNAL" } else { "PLAIN AMQPLAIN" }
}

/// Reads the response of a mechanism. None: it is malformed, and the login fails like any other.
pub(crate) fn credentials(mechanism: &str, response: &[u8]) -> Option<Credentials> {
    let credentials = match mechanism {
        "PLAIN" => plain(response)?,
        "AMQPLAIN" => amqplain(response)?,
        _ => return None,
    };
    let is_long = credentials.user.len() > limits::CREDENTIAL_BYTES_MAX
        || credentials.password.len() > limits::CREDENTIAL_BYTES_MAX;
    let is_odd = credentials.user.is_empty() || credentials.password.is_empty();
    (!is_long && !is_odd).then_some(credentials)
}

/// RFC 4616: an identity to act for (ignored, as RabbitMQ does), the user, the password.
fn plain(response: &[u8]) -> Option<Credentials> {
    let mut parts = response.splitn(3, |&byte| byte == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    if password.contains(&0) {
        return None;
    }
    let user = std::str::from_utf8(user).ok()?.to_owned();
    Some(Credentials { user, password: password.to_vec() })
}

/// A field table without its length, with LOGIN and PASSWORD.
fn amqplain(response: &[u8]) -> Option<Credentials> {
    let table = TableRef::validate(response).ok()?;
    let ValueRef::LongStr(user) = table.find("LOGIN")? else { return None };
    let ValueRef::LongStr(password) = table.find("PASSWORD")? else { return None };
    let user = std::str::from_utf8(user).ok()?.to_owned();
    Some(Credentials { user, password: password.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::FieldTable;

    #[test]
    fn plain_has_three_parts_and_the_first_is_ignored() {
        let found = credentials("PLAIN", b"\0ann\0secret").unwrap();
        assert_eq!((found.user.as_str(), found.password.as_slice()), ("ann", &b"secret"[..]));
        assert_eq!(credentials("PLAIN", b"bob\0ann\0secret").unwrap().user, "ann");
    }

    #[test]
    fn a_response_with_an_empty_long_or_split_password_is_no_login() {
        assert_eq!(credentials("PLAIN", b"\0ann\0"), None);
        assert_eq!(credentials("PLAIN", b"\0\0secret"), None);
        assert_eq!(credentials("PLAIN", b"\0ann\0sec\0ret"), None);
        assert_eq!(credentials("PLAIN", b"ann"), None);
        let long = [b"\0ann\0".to_vec(), vec![b'x'; limits::CREDENTIAL_BYTES_MAX + 1]].concat();
        assert_eq!(credentials("PLAIN", &long), None);
    }

    #[test]
    fn amqplain_is_a_table_without_its_length() {
        let table = FieldTable::from_iter([("LOGIN", "ann"), ("PASSWORD", "secret")]);
        let found = credentials("AMQPLAIN", &table.to_bytes()).unwrap();
        assert_eq!((found.user.as_str(), found.password.as_slice()), ("ann", &b"secret"[..]));
        assert_eq!(credentials("AMQPLAIN", b"\x05LOGIN"), None);
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", credentials("PLAIN", b"\0ann\0s3cr3t"));
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }

    #[test]
    fn every_verb_needs_what_the_table_says() {
        use Resource::{Exchange, Queue};
        use Right::{Configure, Read, Write};
        let table: [(Verb<'_>, &[Need<'_>]); 10] = [
            (
                Verb::DeclareExchange { exchange: "e", alternate: None },
                &[(Configure, Exchange("e"))],
            ),
            (
                Verb::DeclareExchange { exchange: "e", alternate: Some("a") },
                &[(Configure, Exchange("e")), (Read, Exchange("e")), (Write, Exchange("a"))],
            ),
            (Verb::DeleteExchange { exchange: "e" }, &[(Configure, Exchange("e"))]),
            (
                Verb::BindExchange { destination: "d", source: "s" },
                &[(Write, Exchange("d")), (Read, Exchange("s"))],
            ),
            (Verb::DeclareQueue { queue: "q", dead_letter: None }, &[(Configure, Queue("q"))]),
            (
                Verb::DeclareQueue { queue: "q", dead_letter: Some("x") },
                &[(Configure, Queue("q")), (Read, Queue("q")), (Write, Exchange("x"))],
            ),
            (Verb::DeleteQueue { queue: "q" }, &[(Configure, Queue("q"))]),
            (
                Verb::BindQueue { queue: "q", exchange: "e" },
                &[(Write, Queue("q")), (Read, Exchange("e"))],
            ),
            (Verb::Read { queue: "q" }, &[(Read, Queue("q"))]),
            (Verb::Publish { exchange: "e" }, &[(Write, Exchange("e"))]),
        ];
        for (verb, expected) in table {
            let found: Vec<Need<'_>> = needs(verb).into_iter().flatten().collect();
            assert_eq!(found, expected, "{verb:?}");
        }
    }
}
