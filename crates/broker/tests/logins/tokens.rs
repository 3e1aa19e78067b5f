//! Logins with tokens, as sessions see them. Who judges tokens is played by the tests.

use std::sync::Arc;
use std::time::Duration;

use broker::Config;
use broker::session::{Input, Judged, LoginRefusal, Notice};
use oauth::{Grant, Refusal};

use crate::world::World;
use crate::{ELSEWHERE, HERE};

/// {"alg":"none"}, which is enough to be taken for a token.
const TOKEN: &str = "eyJhbGciOiJub25lIn0.e30.c4n4ry";

/// The clock of these worlds begins at 0.
const EXPIRES_S: u64 = 60;

fn grant(user: &str, scopes: &[&str]) -> Judged {
    Ok(Arc::new(Grant::of_scopes(user, EXPIRES_S, scopes)))
}

/// A client from there that has shown its token, of which this was found; and what it was told.
fn shown(peer: &str, judged: Judged) -> (World, Vec<String>) {
    let config = Config { takes_tokens: true, ..Config::default() };
    let mut world = World::connected_from(peer, config);
    world.say("protocol-header");
    world.say(&format!("0 connection.start-ok mechanism=PLAIN response=\\0x\\0{TOKEN}"));
    let told = answered(&mut world, judged);
    (world, told)
}

fn answered(world: &mut World, judged: Judged) -> Vec<String> {
    let asked = world.out.token.take().expect("a token is to be judged");
    assert_eq!(asked.token, TOKEN.as_bytes());
    assert!(!format!("{asked:?}").contains("c4n4ry"), "it is not shown");
    world.step(Input::Judged(judged));
    world.settle_down()
}

/// A client of `ann` with these scopes in `/`, with channel 1 open.
fn running(scopes: &[&str]) -> World {
    let (mut world, _) = shown(HERE, grant("ann", scopes));
    world.say("0 connection.tune-ok channel-max=9 frame-max=131072 heartbeat=0");
    world.say("0 connection.open virtual-host=/");
    world.say("1 channel.open");
    assert!(world.session.is_running());
    world
}

fn renew(world: &mut World, judged: Judged) -> Vec<String> {
    world.say(&format!("0 connection.update-secret new-secret={TOKEN} reason=x"));
    answered(world, judged)
}

fn says(lines: &[String], words: &str) -> bool {
    lines.iter().any(|line| line.contains(words))
}

#[test]
fn the_owner_of_a_token_needs_no_user_and_may_do_what_the_token_says() {
    let mut world = running(&["configure:%2F/jobs", "write:%2F/jobs"]);
    assert_eq!(world.session.describe_line(0).user, "ann");
    assert!(says(&world.say("1 queue.declare queue=jobs"), "queue.declare-ok"));
    let told = world.say("1 queue.declare queue=other");
    assert!(says(&told, "channel.close reply-code=403"), "{told:?}");
    assert!(says(&told, "configure access to queue 'other' in vhost '/' refused for user 'ann'"));
}

#[test]
fn a_token_opens_no_vhost_that_its_scopes_do_not_name() {
    for scopes in [&[][..], &["read:shop/*"], &["tag:administrator"]] {
        let (mut world, told) = shown(HERE, grant("ann", scopes));
        assert!(says(&told, "connection.tune"));
        world.say("0 connection.tune-ok channel-max=9 frame-max=131072 heartbeat=0");
        let told = world.say("0 connection.open virtual-host=/");
        assert!(says(&told, "connection.close reply-code=530"), "{scopes:?}: {told:?}");
    }
}

#[test]
fn operators_are_told_why_a_token_is_refused() {
    for (peer, judged, expected) in [
        (HERE, Err(Refusal::Expired), LoginRefusal::Token(Refusal::Expired)),
        (HERE, Err(Refusal::Signature), LoginRefusal::Token(Refusal::Signature)),
        // A name that may come from this machine only is bound, whatever its proof is.
        (ELSEWHERE, grant("guest", &["read:*/*"]), LoginRefusal::LoopbackOnly),
    ] {
        let (mut world, _) = shown(peer, judged);
        assert!(!world.session.is_known());
        match world.out.notice.take() {
            Some(Notice::Refused { why, .. }) => assert_eq!(why, expected),
            other => panic!("{expected:?}: {other:?}"),
        }
    }
    let (world, _) = shown(ELSEWHERE, grant("ann", &["read:*/*"]));
    assert!(world.session.is_known());
}

#[test]
fn a_verdict_on_a_password_lets_no_token_in() {
    let config = Config { takes_tokens: true, ..Config::default() };
    let mut world = World::connected(config);
    world.say("protocol-header");
    world.say(&format!("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0{TOKEN}"));
    world.step(Input::Verified(true));
    assert!(!world.session.is_known());
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let bytes = world.bytes("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0wrong");
    world.session.buffer().extend_from_slice(&bytes);
    world.step(Input::Received);
    world.step(Input::Judged(grant("guest", &["read:*/*"])));
    assert!(!world.session.is_known());
}

#[test]
fn where_no_tokens_are_taken_one_is_a_password_like_any_other() {
    let mut world = World::connected(Config::default());
    world.say("protocol-header");
    let bytes =
        world.bytes(&format!("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0{TOKEN}"));
    world.session.buffer().extend_from_slice(&bytes);
    world.step(Input::Received);
    assert!(world.out.token.is_none());
    assert_eq!(world.out.verify.take().unwrap().password, TOKEN.as_bytes());
}

#[test]
fn a_login_ends_with_its_token_and_nothing_is_done_from_that_moment_on() {
    let mut world = running(&["configure:*/*"]);
    assert!(world.session.deadline() <= Some(world.now + Duration::from_secs(EXPIRES_S)));
    world.now += Duration::from_secs(EXPIRES_S) - Duration::from_millis(1);
    assert!(says(&world.say("1 queue.declare queue=early"), "queue.declare-ok"));
    world.now += Duration::from_millis(1);
    let told = world.say("1 queue.declare queue=late");
    assert!(says(&told, "connection.close reply-code=320"), "{told:?}");
    assert!(says(&told, "the token of user 'ann' has expired"), "{told:?}");
    assert!(world.cluster.catalog.queue("/", "early").is_some());
    assert!(world.cluster.catalog.queue("/", "late").is_none());
    let mut quiet = running(&["configure:*/*"]);
    quiet.now += Duration::from_secs(EXPIRES_S);
    quiet.step(Input::DeadlinePassed);
    assert!(says(&quiet.settle_down(), "connection.close reply-code=320"), "who says nothing, too");
}

#[test]
fn a_renewed_login_has_the_rights_of_the_new_token_and_no_others() {
    let mut world = running(&["configure:*/*", "write:*/*", "tag:impersonator"]);
    world.say("1 queue.declare queue=jobs");
    world.now += Duration::from_secs(EXPIRES_S - 1);
    let later = Grant::of_scopes("ann", 3600, &["write:*/amq.default", "configure:%2F/jobs"]);
    assert!(says(&renew(&mut world, Ok(Arc::new(later))), "connection.update-secret-ok"));
    world.now += Duration::from_secs(60);
    assert!(world.session.is_running(), "until the new token expires");
    assert!(says(&world.say("1 queue.declare queue=jobs"), "queue.declare-ok"));
    let told = world.say("1 queue.declare queue=other");
    assert!(says(&told, "reply-code=403"), "{told:?}");
}

/// Where a message goes, and in whose name it may, is remembered as long as the rights are the same.
#[test]
fn a_renewed_login_publishes_by_its_new_rights_only() {
    let mut world = running(&["configure:*/*", "write:*/*", "tag:impersonator"]);
    world.say("1 queue.declare queue=jobs");
    let plain = "1 basic.publish routing-key=jobs body=x";
    let as_bob = "1 basic.publish routing-key=jobs p:user-id=bob body=x";
    for line in [plain, as_bob] {
        assert!(world.say(line).is_empty());
    }
    renew(&mut world, grant("ann", &["write:*/*"]));
    assert!(world.say(plain).is_empty());
    let told = world.say(as_bob);
    assert!(
        says(&told, "user_id property set to 'bob' but authenticated user was 'ann'"),
        "{told:?}"
    );
    world.say("1 channel.close-ok");
    world.say("1 channel.open");
    assert!(world.say(plain).is_empty());
    renew(&mut world, grant("ann", &["write:*/other"]));
    let told = world.say(plain);
    assert!(says(&told, "write access to exchange 'amq.default' in vhost '/' refused"), "{told:?}");
}

#[test]
fn what_comes_behind_a_new_token_waits_until_it_is_judged() {
    let mut world = running(&["configure:*/*"]);
    let mut bytes = world.bytes(&format!("0 connection.update-secret new-secret={TOKEN} reason=x"));
    bytes.extend(world.bytes("1 queue.declare queue=late"));
    let told = world.feed(&bytes);
    assert!(told.is_empty() && !world.session.wants_input(0), "{told:?}");
    let told = answered(&mut world, grant("ann", &["configure:%2F/other"]));
    assert!(says(&told, "connection.update-secret-ok"), "{told:?}");
    assert!(says(&told, "reply-code=403"), "by the rights of the new token: {told:?}");
}

#[test]
fn a_login_is_not_renewed_by_a_token_of_another_user_or_vhost_or_a_bad_one() {
    for (judged, expected) in [
        (grant("bob", &["read:*/*"]), LoginRefusal::OtherUser),
        (grant("ann", &["read:shop/*"]), LoginRefusal::OtherVhost),
        (Err(Refusal::Expired), LoginRefusal::Token(Refusal::Expired)),
    ] {
        let mut world = running(&["read:*/*"]);
        let told = renew(&mut world, judged);
        let words = "NOT_ALLOWED - New secret was refused by one of the backends";
        assert!(says(&told, "connection.close reply-code=530") && says(&told, words), "{told:?}");
        match world.out.notice.take() {
            Some(Notice::Refused { why, .. }) => assert_eq!(why, expected),
            other => panic!("{expected:?}: {other:?}"),
        }
    }
}

#[test]
fn the_secret_of_a_password_login_is_not_looked_at() {
    let mut world = World::running();
    let told = world.say(&format!("0 connection.update-secret new-secret={TOKEN} reason=x"));
    assert!(says(&told, "connection.update-secret-ok") && world.out.token.is_none(), "{told:?}");
}
