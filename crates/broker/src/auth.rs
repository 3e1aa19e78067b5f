//! Who may do what: one function, called for every verb, refusing by default.
//!
//! A permission is three regular expressions on names (configure, write, read) for a user in a vhost, or a scope of a
//! token: see `rights`. Passive declarations need none, as in RabbitMQ; everything else that names a queue or an
//! exchange is in the table of `needs`.

use amqp::{ReplyCode, TableRef, ValueRef};
use machine::{Catalog, ExchangeKind};
use oauth::Right;

use crate::errors::Failure;
use crate::limits;
use crate::rights::Rights;

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
        key: &'a str,
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
        key: &'a str,
    },
    /// `basic.consume`, `basic.get`, `queue.purge`.
    Read {
        queue: &'a str,
    },
    Publish {
        exchange: &'a str,
        key: &'a str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource<'a> {
    Exchange(&'a str),
    Queue(&'a str),
    /// A routing key of an exchange: asked about where the exchange is a topic exchange.
    Topic {
        exchange: &'a str,
        key: &'a str,
    },
}

type Need<'a> = (Right, Resource<'a>);

/// Everything a verb needs: the whole of the authorisation rules.
fn needs<'a>(verb: Verb<'a>) -> [Option<Need<'a>>; 3] {
    use Resource::{Exchange, Queue, Topic};
    use Right::{Configure, Read, Write};
    match verb {
        Verb::DeclareExchange { exchange, alternate } => [
            Some((Configure, Exchange(exchange))),
            alternate.map(|_| (Read, Exchange(exchange))),
            alternate.map(|alternate| (Write, Exchange(alternate))),
        ],
        Verb::DeleteExchange { exchange } => [Some((Configure, Exchange(exchange))), None, None],
        Verb::BindExchange { destination, source, key } => [
            Some((Write, Exchange(destination))),
            Some((Read, Exchange(source))),
            Some((Read, Topic { exchange: source, key })),
        ],
        Verb::DeclareQueue { queue, dead_letter } => [
            Some((Configure, Queue(queue))),
            dead_letter.map(|_| (Read, Queue(queue))),
            dead_letter.map(|exchange| (Write, Exchange(exchange))),
        ],
        Verb::DeleteQueue { queue } => [Some((Configure, Queue(queue))), None, None],
        Verb::BindQueue { queue, exchange, key } => [
            Some((Write, Queue(queue))),
            Some((Read, Exchange(exchange))),
            Some((Read, Topic { exchange, key })),
        ],
        Verb::Read { queue } => [Some((Read, Queue(queue))), None, None],
        Verb::Publish { exchange, key } => {
            [Some((Write, Exchange(exchange))), Some((Write, Topic { exchange, key })), None]
        }
    }
}

/// Refuses what the rights of a login of `user` in the vhost do not allow.
pub(crate) fn allow(
    catalog: &Catalog,
    rights: &Rights,
    user: &str,
    vhost: &str,
    verb: Verb<'_>,
) -> Result<(), Failure> {
    for (right, resource) in needs(verb).into_iter().flatten() {
        let (kind, name) = match resource {
            // The default exchange has no name: its rights are those of `amq.default`.
            Resource::Exchange("") => ("exchange", "amq.default"),
            Resource::Exchange(name) => ("exchange", name),
            Resource::Queue(name) => ("queue", name),
            Resource::Topic { exchange, key } => {
                let is_topic = catalog
                    .exchange(vhost, exchange)
                    .is_some_and(|it| it.kind() == ExchangeKind::Topic);
                if is_topic && !rights.allows_key(catalog, user, vhost, right, (exchange, key)) {
                    return Err(topic_refused(user, vhost, exchange, key));
                }
                continue;
            }
        };
        if !rights.allows(catalog, user, vhost, right, name) {
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

fn topic_refused(user: &str, vhost: &str, exchange: &str, key: &str) -> Failure {
    let text = format!(
        "access to topic '{key}' in exchange '{exchange}' in vhost '{vhost}' refused for user '{user}'"
    );
    Failure::channel(ReplyCode::AccessRefused, text)
}

/// What a client says to log in. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Vec<u8>,
    /// The password is a token: who logs in stands there, and the user's name means nothing.
    pub(crate) is_token: bool,
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

/// Reads the response of a mechanism, in which a password may be a token if this node takes some. None: it is malformed,
/// and the login fails like any other.
pub(crate) fn credentials(
    mechanism: &str,
    response: &[u8],
    takes_tokens: bool,
) -> Option<Credentials> {
    let (user, password) = match mechanism {
        "PLAIN" => plain(response)?,
        "AMQPLAIN" => amqplain(response)?,
        _ => return None,
    };
    let is_token = takes_tokens && oauth::looks_like_token(&password);
    let password_max =
        if is_token { oauth::limits::TOKEN_BYTES_MAX } else { limits::CREDENTIAL_BYTES_MAX };
    let is_long = user.len() > limits::CREDENTIAL_BYTES_MAX || password.len() > password_max;
    let is_odd = (user.is_empty() && !is_token) || password.is_empty();
    (!is_long && !is_odd).then_some(Credentials { user, password, is_token })
}

/// RFC 4616: an identity to act for (ignored, as RabbitMQ does), the user, the password.
fn plain(response: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut parts = response.splitn(3, |&byte| byte == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    if password.contains(&0) {
        return None;
    }
    Some((std::str::from_utf8(user).ok()?.to_owned(), password.to_vec()))
}

/// A field table without its length, with LOGIN and PASSWORD.
fn amqplain(response: &[u8]) -> Option<(String, Vec<u8>)> {
    let table = TableRef::validate(response).ok()?;
    let ValueRef::LongStr(user) = table.find("LOGIN")? else { return None };
    let ValueRef::LongStr(password) = table.find("PASSWORD")? else { return None };
    Some((std::str::from_utf8(user).ok()?.to_owned(), password.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use amqp::FieldTable;

    fn credentials(mechanism: &str, response: &[u8]) -> Option<Credentials> {
        super::credentials(mechanism, response, false)
    }

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
    fn a_password_may_be_a_token_where_tokens_are_taken() {
        // {"alg":"none"}
        let token = [b"eyJhbGciOiJub25lIn0.".to_vec(), vec![b'x'; 2000], b".x".to_vec()].concat();
        let response = [b"\0\0".to_vec(), token.clone()].concat();
        let found = super::credentials("PLAIN", &response, true).unwrap();
        assert!(found.is_token && found.user.is_empty() && found.password == token);
        assert_eq!(super::credentials("PLAIN", &response, false), None, "too long a password");
        let plain = super::credentials("PLAIN", b"\0ann\0sec.re.t", true).unwrap();
        assert!(!plain.is_token);
        assert_eq!(super::credentials("PLAIN", b"\0\0sec.re.t", true), None, "without a name");
        let long = [b"\0\0".to_vec(), token, vec![b'x'; oauth::limits::TOKEN_BYTES_MAX]].concat();
        assert_eq!(super::credentials("PLAIN", &long, true), None);
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", credentials("PLAIN", b"\0ann\0s3cr3t"));
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }

    #[test]
    fn every_verb_needs_what_the_table_says() {
        use Resource::{Exchange, Queue, Topic};
        use Right::{Configure, Read, Write};
        let topic = Topic { exchange: "e", key: "k" };
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
                Verb::BindExchange { destination: "d", source: "e", key: "k" },
                &[(Write, Exchange("d")), (Read, Exchange("e")), (Read, topic)],
            ),
            (Verb::DeclareQueue { queue: "q", dead_letter: None }, &[(Configure, Queue("q"))]),
            (
                Verb::DeclareQueue { queue: "q", dead_letter: Some("x") },
                &[(Configure, Queue("q")), (Read, Queue("q")), (Write, Exchange("x"))],
            ),
            (Verb::DeleteQueue { queue: "q" }, &[(Configure, Queue("q"))]),
            (
                Verb::BindQueue { queue: "q", exchange: "e", key: "k" },
                &[(Write, Queue("q")), (Read, Exchange("e")), (Read, topic)],
            ),
            (Verb::Read { queue: "q" }, &[(Read, Queue("q"))]),
            (Verb::Publish { exchange: "e", key: "k" }, &[(Write, Exchange("e")), (Write, topic)]),
        ];
        for (verb, expected) in table {
            let found: Vec<Need<'_>> = needs(verb).into_iter().flatten().collect();
            assert_eq!(found, expected, "{verb:?}");
        }
    }
}
