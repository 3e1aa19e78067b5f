//! What operators are told of logins, and what is asked of those who check passwords.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: the time begins now, and what cannot be read fails it"
)]

#[path = "support/fake_cluster.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod fake_cluster;
#[path = "logins/tokens.rs"]
mod tokens;
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "scripts use the rest")]
mod wire;
#[path = "support/world.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod world;

use broker::session::{Certified, Input, LoginRefusal, Notice};
use broker::{Config, limits, password};
use certificates::NoUser;
use machine::{Applied, CatalogCommand, NodeId};
use world::World;

/// The node that every test runs on.
pub(crate) const NODE: NodeId = NodeId(1);

const HERE: &str = "127.0.0.1:40000";
const ELSEWHERE: &str = "[2001:db8::7]:40000";

fn put_user(world: &mut World, name: &str, password_hash: &str) {
    let command = CatalogCommand::PutUser {
        name: name.to_owned(),
        password_hash: password_hash.to_owned(),
        tags: Vec::new(),
    };
    let at = Applied { index: world.cluster.catalog.version() + 1, time_ms: 0 };
    world.cluster.catalog.apply(at, command, &mut Vec::new());
}

/// Why a login from there is refused.
fn refusal(peer: &str, response: &str) -> LoginRefusal {
    let mut world = World::connected_from(peer, Config::default());
    put_user(&mut world, "machine", "");
    put_user(&mut world, "ann", &password::hash("secret", [1; 16]));
    world.say("protocol-header");
    world.say(&format!("0 connection.start-ok mechanism=PLAIN response={response}"));
    match world.out.notice.take() {
        Some(Notice::Refused { why, .. }) => why,
        other => panic!("{response} from {peer}: {other:?}"),
    }
}

#[test]
fn operators_are_told_why_a_login_is_refused() {
    assert_eq!(refusal(HERE, "\\0guest\\0wrong"), LoginRefusal::WrongPassword);
    assert_eq!(refusal(ELSEWHERE, "\\0guest\\0guest"), LoginRefusal::LoopbackOnly);
    assert_eq!(refusal(ELSEWHERE, "\\0guest\\0wrong"), LoginRefusal::LoopbackOnly);
    assert_eq!(refusal(ELSEWHERE, "\\0ann\\0wrong"), LoginRefusal::WrongPassword);
    assert_eq!(refusal(HERE, "\\0nobody\\0x"), LoginRefusal::NoSuchUser);
    assert_eq!(refusal(HERE, "\\0machine\\0x"), LoginRefusal::NoPassword);
    assert_eq!(refusal(HERE, "\\0guest\\0"), LoginRefusal::Unreadable);
}

/// A client from there whose certificate names somebody, after it has asked to log in with that.
fn external(peer: &str, certified: Certified) -> World {
    let mut world = World::connected_from(peer, Config::default());
    put_user(&mut world, "machine", "");
    world.session = world.session.certified(certified);
    let start = world.say("protocol-header");
    assert!(start[0].contains("PLAIN AMQPLAIN EXTERNAL"), "{start:?}");
    // Who else it says it is does not count.
    world.say("0 connection.start-ok mechanism=EXTERNAL response=guest");
    world
}

#[test]
fn a_certificate_is_a_login_of_a_user_that_is_there_and_may_come_from_there() {
    for peer in [HERE, ELSEWHERE] {
        let world = external(peer, Ok("machine".to_owned()));
        assert!(world.session.is_known(), "from {peer}");
        assert!(world.out.verify.is_none(), "no password is asked for");
    }
    assert!(external(HERE, Ok("guest".to_owned())).session.is_known());
    for (named, expected) in [
        (Ok("guest".to_owned()), LoginRefusal::LoopbackOnly),
        (Ok("nobody".to_owned()), LoginRefusal::NoSuchUser),
        (Err(NoUser::ControlCharacter), LoginRefusal::Certificate(NoUser::ControlCharacter)),
    ] {
        let mut world = external(ELSEWHERE, named.clone());
        assert!(!world.session.is_known() && world.session.is_lingering(), "{named:?}");
        let Some(Notice::Refused { user, mechanism, why, .. }) = world.out.notice.take() else {
            panic!("{named:?}: operators are told");
        };
        assert_eq!((user, mechanism.as_str()), (named.unwrap_or_default(), "EXTERNAL"));
        assert_eq!(why, expected);
    }
}

#[test]
fn operators_are_told_who_connects() {
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let long = "b".repeat(limits::CLIENT_NAME_LETTERS_MAX + 1);
    world.say(&format!(
        "0 connection.start-ok client-properties={{connection_name=str:{long}}} mechanism=PLAIN \
         response=\\0guest\\0guest"
    ));
    world.say("0 connection.tune-ok channel-max=1 frame-max=131072 heartbeat=0");
    assert!(!world.session.is_running() && world.session.is_known());
    world.say("0 connection.open virtual-host=/");
    let text = str::to_owned;
    let client = text(&long[1..]);
    let connected = Notice::Connected { user: text("guest"), vhost: text("/"), client };
    assert_eq!(world.out.notice.take(), Some(connected));
}

#[test]
fn a_user_that_may_not_come_from_there_has_no_password_checked() {
    let mut world = World::connected_from(ELSEWHERE, Config::default());
    world.say("protocol-header");
    let bytes = world.bytes("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest");
    world.session.buffer().extend_from_slice(&bytes);
    world.step(Input::Received);
    let verify = world.out.verify.take().unwrap();
    assert_eq!(
        (verify.stored, verify.peer),
        (None, ELSEWHERE.parse::<std::net::SocketAddr>().unwrap().ip())
    );
}

#[test]
fn a_login_whose_password_waits_too_long_is_closed_without_a_verdict() {
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let bytes = world.bytes("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest");
    world.session.buffer().extend_from_slice(&bytes);
    world.step(Input::Received);
    world.out.bytes.clear();
    world.now += Config::default().handshake;
    world.step(Input::DeadlinePassed);
    assert!(world.out.close && world.out.bytes.is_empty());
    assert_eq!(world.out.notice.take(), Some(Notice::Unjudged { user: "guest".to_owned() }));
}
