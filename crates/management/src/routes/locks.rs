//! Locks: who holds them, and values beside them. Their leaders decide; here it is said what they are asked.
//!
//! Whoever may see a vhost sees its locks. To change a lock needs permission to write to its name, to see its value
//! permission to read from it. Who administrates may also free a lock that another holds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::{LockQuestion, LockSpec};
use http::StatusCode;
use machine::{LockCommand, LockHolder, LockReply, LockValue, LockView};
use serde_json::{Value, json};

use super::messages::shown_payload;
use crate::access::{Role, Who};
use crate::asked::{Asked, Body, missing};
use crate::limits::LOCK_WAIT_MS_MAX;
use crate::neighbour::ToldWaiter;
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::{Lock, LockStep, Work};

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = vhost(view, asked)?;
    let groups = view.catalog.lock_groups().collect();
    Ok(Work::Locks { vhost, groups, shape: Shape::of(asked)? })
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let unlike = number(asked, "unlike")?;
    let wait_ms = wait(number(asked, "wait_ms")?)?;
    if wait_ms > 0 && unlike.is_none() {
        return Err(Problem::bad(
            "wait_ms waits for another value: unlike says the version that is known, 0 for none",
        ));
    }
    let (vhost, name) = (vhost(view, asked)?, asked.part("lock").to_owned());
    work(view, asked, LockQuestion::Read { vhost, name, unlike }, wait_ms)
}

pub(super) fn acquire(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name, body) = changed(view, asked)?;
    let owner = body.needed("owner")?.to_owned();
    let lease_ms = body.count("lease_ms")?.ok_or_else(|| missing("lease_ms"))?;
    let wait_ms = wait(body.count("wait_ms")?)?;
    let command = LockCommand::Acquire { vhost, name, owner, lease_ms };
    work(view, asked, LockQuestion::Do(command), wait_ms)
}

pub(super) fn renew(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name, body) = changed(view, asked)?;
    let token = body.count("token")?.ok_or_else(|| missing("token"))?;
    let lease_ms = body.count("lease_ms")?.ok_or_else(|| missing("lease_ms"))?;
    let command = LockCommand::Renew { vhost, name, token, lease_ms };
    work(view, asked, LockQuestion::Do(command), 0)
}

pub(super) fn release(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    if asked.says("force") {
        return force(view, asked);
    }
    let (vhost, name, _) = changed(view, asked)?;
    let token = number(asked, "token")?.ok_or_else(|| missing("token"))?;
    work(view, asked, LockQuestion::Do(LockCommand::Release { vhost, name, token }), 0)
}

/// Whoever holds it is not asked.
fn force(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    if !Role::of(asked.who(view.catalog)?).administrates {
        let why = "Not administrator user: only who administrates frees a lock that another holds";
        return Err(Problem::NotAuthorised(why.to_owned()));
    }
    let (vhost, name) = (vhost(view, asked)?, asked.part("lock").to_owned());
    let group = view.catalog.lock_group(&vhost, &name);
    Ok(Work::Lock(Lock { group, vhost, name, step: LockStep::Force, sees_value: false }))
}

pub(super) fn put_value(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name, body) = changed(view, asked)?;
    let text = body.needed("value")?;
    let value = match body.text("encoding")? {
        None | Some("string") => text.as_bytes().to_vec(),
        Some("base64") => {
            let decoded = STANDARD.decode(text);
            decoded.map_err(|_| Problem::bad("value should be base64, as encoding says"))?
        }
        Some(other) => return Err(Problem::bad(format!("unknown encoding '{other}'"))),
    };
    let (expected, token) = (body.count("version")?, body.count("token")?);
    // The node gives it a number when it asks.
    let (by, value) = (0, Some(value.into()));
    let command = LockCommand::Put { vhost, name, by, expected, token, value };
    work(view, asked, LockQuestion::Do(command), 0)
}

pub(super) fn delete_value(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name, _) = changed(view, asked)?;
    let (expected, token) = (number(asked, "version")?, number(asked, "token")?);
    let command = LockCommand::Put { vhost, name, by: 0, expected, token, value: None };
    work(view, asked, LockQuestion::Do(command), 0)
}

fn work(view: &View<'_>, asked: &Asked, what: LockQuestion, wait_ms: u32) -> Result<Work, Problem> {
    if let LockQuestion::Do(command) = &what {
        command.check().map_err(|refusal| Problem::bad(refusal.to_string()))?;
    }
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("lock").to_owned());
    let group = view.catalog.lock_group(&vhost, &name);
    let sees_value = asked.who(view.catalog)?.reads(&vhost, &name);
    let step = LockStep::Ask(LockSpec { what, wait_ms, is_again: false });
    Ok(Work::Lock(Lock { group, vhost, name, step, sees_value }))
}

/// The vhost, which must be there.
fn vhost(view: &View<'_>, asked: &Asked) -> Result<String, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(asked.vhost().to_owned())
}

/// The lock that somebody wants to change, and may.
fn changed(view: &View<'_>, asked: &Asked) -> Result<(String, String, Body), Problem> {
    let (vhost, name) = (vhost(view, asked)?, asked.part("lock").to_owned());
    let who: Who<'_> = asked.who(view.catalog)?;
    if !who.writes(&vhost, &name) {
        let why = format!("{} has no permission to write to the lock '{name}'", who.name());
        return Err(Problem::NotAuthorised(why));
    }
    Ok((vhost, name, asked.object()?))
}

/// A number of the query.
fn number(asked: &Asked, name: &str) -> Result<Option<u64>, Problem> {
    let Some(word) = asked.word(name) else { return Ok(None) };
    let number = word.parse();
    number.map(Some).map_err(|_| Problem::bad(format!("{name} should be a whole number")))
}

fn wait(wait_ms: Option<u64>) -> Result<u32, Problem> {
    let wait_ms = wait_ms.unwrap_or(0);
    let is_fit = wait_ms <= u64::from(LOCK_WAIT_MS_MAX);
    u32::try_from(wait_ms).ok().filter(|_| is_fit).ok_or_else(|| {
        Problem::bad(format!("wait_ms should be at most {LOCK_WAIT_MS_MAX}: ask again to wait on"))
    })
}

/// How a lock stands. Without its value for who may not read it.
pub(crate) fn shown(vhost: &str, view: &LockView, sees_value: bool) -> Value {
    let LockView { name, holder, value } = view;
    let mut shown = json!({
        "vhost": vhost,
        "name": name,
        "held": holder.is_some(),
        "version": value.as_ref().map_or(0, |value| value.version),
    });
    if let Some(LockHolder { owner, token, left_ms }) = holder {
        shown["owner"] = json!(owner);
        shown["token"] = json!(token);
        shown["left_ms"] = json!(left_ms);
    }
    if let Some(LockValue { bytes, .. }) = value.as_ref().filter(|_| sees_value) {
        let (text, encoding) = shown_payload(bytes, false);
        shown["value"] = json!(text);
        shown["encoding"] = json!(encoding);
    }
    shown
}

/// Adds who waits for the lock. `None`: it is not known.
pub(crate) fn add_line(body: &mut Value, line: Option<(Vec<ToldWaiter>, usize)>, now_ms: u64) {
    let (first, count) = line.unzip();
    let waiter =
        |it: ToldWaiter| json!({ "owner": it.owner, "since": now_ms.saturating_sub(it.waited_ms) });
    body["waiting"] = first.map(|first| first.into_iter().map(waiter).collect::<Vec<_>>()).into();
    body["waiting_count"] = count.into();
}

/// What a leader's answer is over HTTP.
pub(crate) fn reply(vhost: &str, reply: &LockReply, sees_value: bool) -> Result<Reply, Problem> {
    let conflict = |error: &str, reason: String, view: &LockView| {
        let mut body = shown(vhost, view, sees_value);
        body["error"] = json!(error);
        body["reason"] = json!(reason);
        Ok(Reply { status: StatusCode::CONFLICT, body: Some(body), location: None })
    };
    match reply {
        LockReply::Acquired { token, lease_ms, is_new } => {
            let body = json!({ "token": token, "lease_ms": lease_ms, "new": is_new });
            let status = if *is_new { StatusCode::CREATED } else { StatusCode::OK };
            Ok(Reply { status, body: Some(body), location: None })
        }
        LockReply::Held(view) => {
            let reason = match &view.holder {
                Some(holder) => format!("{} holds the lock", holder.owner),
                None => "others wait for the lock".to_owned(),
            };
            conflict("held", reason, view)
        }
        LockReply::NotHeld(view) => {
            let reason = match &view.holder {
                Some(holder) => {
                    format!("the lock is held under another token, by {}", holder.owner)
                }
                None => "the lock is not held: it was released, or its lease was over".to_owned(),
            };
            conflict("not_held", reason, view)
        }
        LockReply::Conflict(view) => {
            let version = view.value.as_ref().map_or(0, |value| value.version);
            conflict("version", format!("the value has version {version}"), view)
        }
        LockReply::Put { version: 0 } | LockReply::Done => Ok(Reply::done()),
        LockReply::Put { version } => Ok(Reply::of(json!({ "version": version }))),
        LockReply::Is(view) => Ok(Reply::of(shown(vhost, view, sees_value))),
        LockReply::Refused(refusal) => Err(Problem::bad(refusal.to_string())),
        LockReply::List { .. } => unreachable!("lists are asked of all groups, and made one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> LockView {
        let holder = Some(LockHolder { owner: "ann".into(), token: 7, left_ms: 900 });
        let value = Some(LockValue { version: 9, bytes: b"secret".to_vec() });
        LockView { name: "job".into(), holder, value }
    }

    #[test]
    fn a_value_is_shown_to_who_may_read_it() {
        let seen = shown("/", &view(), true);
        assert_eq!((&seen["value"], &seen["encoding"]), (&json!("secret"), &json!("string")));
        for reply in [LockReply::Is(view()), LockReply::Held(view()), LockReply::Conflict(view())] {
            let told = super::reply("/", &reply, false).unwrap().body.unwrap();
            assert!(!told.to_string().contains("secret"), "{told}");
            assert_eq!((&told["owner"], &told["version"]), (&json!("ann"), &json!(9)));
        }
    }

    #[test]
    fn it_is_said_who_waits_for_a_lock_or_that_nobody_knows() {
        let mut shown = shown("/", &view(), true);
        add_line(&mut shown, None, 5_000);
        assert_eq!((&shown["waiting"], &shown["waiting_count"]), (&Value::Null, &Value::Null));
        let bob = ToldWaiter { owner: "bob".into(), waited_ms: 1_000 };
        add_line(&mut shown, Some((vec![bob], 3)), 5_000);
        assert_eq!(shown["waiting"], json!([{ "owner": "bob", "since": 4_000 }]));
        assert_eq!(shown["waiting_count"], 3);
    }

    #[test]
    fn each_answer_has_its_status() {
        let free = LockView { name: "job".into(), holder: None, value: None };
        let status = |reply| super::reply("/", &reply, true).unwrap().status.as_u16();
        let got = |is_new| LockReply::Acquired { token: 1, lease_ms: 1000, is_new };
        assert_eq!((status(got(true)), status(got(false))), (201, 200));
        assert_eq!(status(LockReply::Held(view())), 409);
        assert_eq!(status(LockReply::NotHeld(free)), 409);
        assert_eq!(status(LockReply::Conflict(view())), 409);
        assert_eq!((status(LockReply::Done), status(LockReply::Put { version: 0 })), (204, 204));
        assert_eq!(status(LockReply::Put { version: 3 }), 200);
    }
}
