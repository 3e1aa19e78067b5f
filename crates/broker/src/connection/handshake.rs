//! From the first byte to `connection.open-ok`: what is said and what is agreed. Until then nothing is believed and little
//! is held: frames are small, the time is bounded, and a failed login waits before it may try again.

use std::time::Duration;

use amqp::{
    FieldTable, FieldValue, Method, ReplyCode, TableRef, ValueRef, connection,
    limits as wire_limits,
};
use certificates::NoUser;

use super::client::{Capabilities, Client};
use super::login::{
    Judge, Judged, LoginRefusal, Notice, Proven, Verify, admit, admit_token, held_against,
};
use super::step::Step;
use crate::config::Config;
use crate::errors::{Failure, unknown_vhost};
use crate::population::{Full, Newcomer};
use crate::rights::Rights;
use crate::{auth, limits};

/// What clients are told we are. They choose their manners by it, and know only one broker whose manners
/// are ours: kombu, and so Celery, asks for a prefetch of the whole channel only where this is the product.
const PRODUCT: &str = "RabbitMQ";
/// The last of those that write `x-death` as `dead_letter::x_death` does.
const COMPATIBLE_VERSION: &str = "3.12.14";
/// Who we are: for people, no client decides anything by it.
const PLATFORM: &str = concat!("Millrace ", env!("CARGO_PKG_VERSION"));

/// Everything that our answers to a client rely on.
const CAPABILITIES: [&str; 9] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
];

/// A login whose password or token is being checked.
#[derive(Debug)]
pub(crate) struct Login {
    /// As the client says.
    user: String,
    mechanism: String,
    checked: Checked,
}

/// What is being checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// And why the login is refused if it is.
    Password(LoginRefusal),
    Token,
}

/// What comes of `connection.start-ok`.
#[derive(Debug)]
pub(crate) enum Started {
    /// The password or token is to be checked.
    Verifying(Login),
    /// The user is known: nothing more has to be proven.
    Known,
    Refused(Refused),
}

impl Login {
    pub(crate) fn user(&self) -> &str {
        &self.user
    }
}

/// A login that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Whether the client was told, and has to answer.
    pub(crate) is_told: bool,
}

/// What was agreed with `connection.tune-ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) frame_bytes_max: u32,
    pub(crate) channel_max: u16,
    pub(crate) heartbeat: Duration,
}

/// `connection.start`.
pub(crate) fn greet(client: &Client, step: &mut Step<'_>) {
    let properties = server_properties(&client.config).to_bytes();
    let start = connection::Start {
        version_major: 0,
        version_minor: 9,
        server_properties: TableRef::validate(&properties).expect("a small table of our own"),
        mechanisms: auth::mechanisms(client.proven.is_some()).as_bytes(),
        locales: b"en_US",
    };
    client.send(step, 0, &Method::ConnectionStart(start));
}

fn server_properties(config: &Config) -> FieldTable {
    let capabilities: FieldTable = CAPABILITIES.iter().map(|&name| (name, true)).collect();
    FieldTable(vec![
        ("capabilities".to_owned(), FieldValue::Table(capabilities)),
        ("cluster_name".to_owned(), config.cluster_name.as_str().into()),
        ("copyright".to_owned(), "The Millrace authors".into()),
        ("information".to_owned(), "Licensed under the Apache License 2.0".into()),
        ("platform".to_owned(), PLATFORM.into()),
        ("product".to_owned(), PRODUCT.into()),
        ("version".to_owned(), COMPATIBLE_VERSION.into()),
    ])
}

/// `connection.start-ok`: who the client says it is, and how it proves that.
pub(crate) fn start_ok(
    client: &mut Client,
    step: &mut Step<'_>,
    start: &connection::StartOk<'_>,
) -> Result<Started, Failure> {
    client.capabilities = capabilities(start.client_properties);
    client.name = client_name(start.client_properties);
    let mechanism = start.mechanism;
    let offered = auth::mechanisms(client.proven.is_some());
    if !offered.split(' ').any(|known| known == mechanism) {
        let text = format!("unknown authentication mechanism '{mechanism}'");
        return Err(Failure::connection(ReplyCode::CommandInvalid, text));
    }
    if mechanism == auth::EXTERNAL {
        return Ok(match external(client, step) {
            Ok(()) => Started::Known,
            Err((user, why)) => Started::Refused(refuse(client, step, mechanism, &user, why)),
        });
    }
    let takes_tokens = client.config.takes_tokens;
    let Some(credentials) = auth::credentials(mechanism, start.response, takes_tokens) else {
        let why = LoginRefusal::Unreadable;
        return Ok(Started::Refused(refuse(client, step, mechanism, "", why)));
    };
    let (peer, mechanism) = (client.peer.ip(), mechanism.to_owned());
    if credentials.is_token {
        step.out.token = Some(Judge { token: credentials.password, peer });
        let login = Login { user: credentials.user, mechanism, checked: Checked::Token };
        return Ok(Started::Verifying(login));
    }
    let (stored, refusal) = held_against(step.catalog(), &client.config, &credentials.user, peer);
    step.out.verify = Some(Verify {
        user: credentials.user.clone(),
        password: credentials.password,
        peer,
        stored,
    });
    let checked = Checked::Password(refusal);
    Ok(Started::Verifying(Login { user: credentials.user, mechanism, checked }))
}

/// Who the client is was proven before. Its response, which may ask to act for another user, is not looked at, as with
/// RabbitMQ. If it is refused, so is the user, as far as a certificate names one.
fn external(client: &mut Client, step: &mut Step<'_>) -> Result<(), (String, LoginRefusal)> {
    let nobody = |why| (String::new(), LoginRefusal::Certificate(why));
    let user = match client.proven.clone() {
        None => return Err(nobody(NoUser::Missing)),
        Some(Proven::Certificate(certified)) => certified.map_err(nobody)?,
        Some(Proven::User(user)) => user,
        Some(Proven::Token(grant)) => {
            let (user, peer) = (grant.user.clone(), client.peer.ip());
            let admitted = admit_token(&client.config, Ok(grant), peer);
            let grant = admitted.map_err(|why| (user.clone(), why))?;
            known(client, step, user, Rights::Token(grant));
            return Ok(());
        }
    };
    match admit(step.catalog(), &client.config, &user, client.peer.ip()) {
        Ok(_) => {
            known(client, step, user, Rights::Catalog);
            Ok(())
        }
        Err(why) => Err((user, why)),
    }
}

/// The password was checked: `connection.tune`, or a refusal.
pub(crate) fn verified(
    client: &mut Client,
    step: &mut Step<'_>,
    login: Login,
    is_right: bool,
) -> Result<(), Refused> {
    let Login { user, mechanism, checked } = login;
    let Checked::Password(refusal) = checked else {
        // Of a token nobody says that it is a right password.
        return Err(refuse(client, step, &mechanism, &user, LoginRefusal::Unreadable));
    };
    if !is_right {
        return Err(refuse(client, step, &mechanism, &user, refusal));
    }
    known(client, step, user, Rights::Catalog);
    Ok(())
}

/// The token was judged: `connection.tune`, or a refusal.
pub(crate) fn judged(
    client: &mut Client,
    step: &mut Step<'_>,
    login: Login,
    judged: Judged,
) -> Result<(), Refused> {
    let Login { user, mechanism, checked } = login;
    let admitted = match checked {
        Checked::Token => admit_token(&client.config, judged, client.peer.ip()),
        Checked::Password(_) => Err(LoginRefusal::Unreadable),
    };
    match admitted {
        Ok(grant) => {
            known(client, step, grant.user.clone(), Rights::Token(grant));
            Ok(())
        }
        Err(why) => Err(refuse(client, step, &mechanism, &user, why)),
    }
}

/// Another token, in place of the one that the client has logged in with: what it gives counts from now on.
///
/// # Errors
/// Why it is no use. Nothing is changed then.
pub(crate) fn renew(
    client: &mut Client,
    step: &mut Step<'_>,
    judged: Judged,
) -> Result<(), LoginRefusal> {
    let grant = admit_token(&client.config, judged, client.peer.ip())?;
    if grant.user != client.user {
        return Err(LoginRefusal::OtherUser);
    }
    if !grant.enters(&client.vhost) {
        return Err(LoginRefusal::OtherVhost);
    }
    client.hold(step, Rights::Token(grant));
    Ok(())
}

/// Who the client is, is proven: `connection.tune`.
fn known(client: &mut Client, step: &mut Step<'_>, user: String, rights: Rights) {
    client.user = user;
    client.hold(step, rights);
    let tune = connection::Tune {
        channel_max: client.config.channel_max,
        frame_max: client.config.frame_bytes_max,
        heartbeat: client.config.heartbeat_seconds,
    };
    client.send(step, 0, &Method::ConnectionTune(tune));
}

/// The same words and the same wait for whatever was wrong.
fn refuse(
    client: &mut Client,
    step: &mut Step<'_>,
    mechanism: &str,
    user: &str,
    why: LoginRefusal,
) -> Refused {
    step.out.notice = Some(Notice::Refused {
        user: user.to_owned(),
        mechanism: mechanism.to_owned(),
        client: std::mem::take(&mut client.name),
        why,
    });
    let is_told = client.capabilities.authentication_failure_close;
    if is_told {
        let text = format!(
            "Login was refused using authentication mechanism {mechanism}. For details see \
             the broker logfile."
        );
        let error = amqp::Error::new(ReplyCode::AccessRefused, text);
        let close = connection::Close {
            reply_code: error.code.number(),
            reply_text: &error.reply_text(),
            class_id: 0,
            method_id: 0,
        };
        client.send(step, 0, &Method::ConnectionClose(close));
    }
    Refused { is_told }
}

/// `connection.tune-ok`.
pub(crate) fn tune_ok(config: &Config, tune: connection::TuneOk) -> Result<Agreed, Failure> {
    let (frame_max, channel_max) = (tune.frame_max, u32::from(tune.channel_max));
    if frame_max != 0 && frame_max < wire_limits::FRAME_BYTES_MIN {
        return Err(negotiated("frame_max", frame_max, wire_limits::FRAME_BYTES_MIN, true));
    }
    if frame_max > config.frame_bytes_max {
        return Err(negotiated("frame_max", frame_max, config.frame_bytes_max, false));
    }
    if channel_max > u32::from(config.channel_max) {
        return Err(negotiated("channel_max", channel_max, config.channel_max.into(), false));
    }
    // Zero is "no limit" and loses against ours.
    Ok(Agreed {
        frame_bytes_max: if frame_max == 0 { config.frame_bytes_max } else { frame_max },
        channel_max: if tune.channel_max == 0 { config.channel_max } else { tune.channel_max },
        heartbeat: Duration::from_secs(tune.heartbeat.into()),
    })
}

/// The refusal of a number that a client negotiated too low or too high.
fn negotiated(name: &str, got: u32, bound: u32, is_low: bool) -> Failure {
    let text = match is_low {
        true => {
            format!("negotiated {name} = {got} is lower than the minimum allowed value ({bound})")
        }
        false => {
            format!("negotiated {name} = {got} is higher than the maximum allowed value ({bound})")
        }
    };
    Failure::connection(ReplyCode::NotAllowed, text)
}

/// `connection.open`.
pub(crate) fn open(client: &mut Client, step: &mut Step<'_>, vhost: &str) -> Result<(), Failure> {
    let catalog = step.catalog();
    if catalog.vhost(vhost).is_none() {
        return Err(unknown_vhost(vhost));
    }
    if !client.rights.enters(catalog, &client.user, vhost) {
        let text = format!("access to vhost '{vhost}' refused for user '{}'", client.user);
        return Err(Failure::connection(ReplyCode::NotAllowed, text));
    }
    let newcomer = Newcomer {
        session: client.session,
        user: &client.user,
        vhost,
        user_max: catalog.user(&client.user).and_then(|user| user.limits.max_connections),
        vhost_max: catalog.vhost(vhost).and_then(|vhost| vhost.limits.max_connections),
    };
    step.view.quotas.connect(newcomer).map_err(|full| no_room(full, &client.user, vhost))?;
    client.vhost = vhost.to_owned();
    step.out.notice = Some(Notice::Connected {
        user: client.user.clone(),
        vhost: vhost.to_owned(),
        client: client.name.clone(),
    });
    client.send(step, 0, &Method::ConnectionOpenOk(connection::OpenOk));
    Ok(())
}

/// In RabbitMQ's words.
fn no_room(full: Full, user: &str, vhost: &str) -> Failure {
    let text = match full {
        Full::Vhost { max } => format!(
            "access to vhost '{vhost}' refused for user '{user}': connection limit ({max}) is reached"
        ),
        Full::User { max } => {
            format!(
                "Connection refused for user '{user}': user connection limit ({max}) is reached"
            )
        }
    };
    Failure::connection(ReplyCode::NotAllowed, text)
}

/// What the client calls its connection, or the library that it is.
fn client_name(client_properties: TableRef<'_>) -> String {
    let text = |key| match client_properties.find(key) {
        Some(ValueRef::LongStr(text)) if !text.is_empty() => Some(String::from_utf8_lossy(text)),
        Some(_) | None => None,
    };
    let name = text("connection_name").or_else(|| text("product")).unwrap_or_default();
    name.chars().take(limits::CLIENT_NAME_LETTERS_MAX).collect()
}

fn capabilities(client_properties: TableRef<'_>) -> Capabilities {
    let Some(ValueRef::Table(table)) = client_properties.find("capabilities") else {
        return Capabilities::default();
    };
    let has = |name: &str| matches!(table.find(name), Some(ValueRef::Bool(true)));
    Capabilities {
        authentication_failure_close: has("authentication_failure_close"),
        consumer_cancel_notify: has("consumer_cancel_notify"),
        connection_blocked: has("connection.blocked"),
    }
}
