//! Users, their passwords and tags.

use machine::{CatalogCommand, User};
use serde_json::{Value, json};

use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.users().map(shown).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn without_permissions(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let bare = view.catalog.users().filter(|user| user.all_permissions().next().is_none());
    Ok(Work::list(&Shape::of(asked)?, bare.map(shown).collect()))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    Ok(Work::answer(shown(user)))
}

/// How a user is shown, and written into definitions.
pub(super) fn shown(user: &User) -> Value {
    json!({
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": algorithm(&user.password_hash),
        "tags": user.tags,
        "limits": super::limits::user_value(user.limits),
    })
}

/// RabbitMQ's names for its own; ours says itself what it is.
fn algorithm(hash: &str) -> &'static str {
    /// Base64 of four bytes of salt and 64 of SHA-512.
    const SHA512_LETTERS: usize = 92;
    match hash {
        hash if hash.starts_with('$') => "argon2id",
        hash if hash.len() == SHA512_LETTERS => "rabbit_password_hashing_sha512",
        _ => "rabbit_password_hashing_sha256",
    }
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.part("user").to_owned();
    let reply = Reply::put(view.catalog.user(&name).is_some());
    let body = asked.object()?;
    let tags = tags(&body)?;
    let then = limits(&name, &body)?;
    match password(&body)? {
        Password::Plain(password) => Ok(Work::PutUser { name, password, tags, then, reply }),
        Password::Hashed(password_hash) => {
            let put = CatalogCommand::PutUser { name, password_hash, tags };
            Ok(Work::Change { commands: [put].into_iter().chain(then).collect(), reply })
        }
    }
}

/// What a body says of a user's limits; nothing leaves them as they are.
pub(super) fn limits(user: &str, body: &Body) -> Result<Option<CatalogCommand>, Problem> {
    let Some(limits) = super::limits::said(body)? else { return Ok(None) };
    let change = super::limits::users(&limits)?;
    Ok(Some(CatalogCommand::SetUserLimits { user: user.to_owned(), change }))
}

/// What a body says of a password.
pub(super) enum Password {
    Plain(String),
    /// As it is stored. Empty: no login by password.
    Hashed(String),
}

/// As in RabbitMQ: a hash goes before a password, and neither means that the user cannot log in with one.
pub(super) fn password(body: &Body) -> Result<Password, Problem> {
    match (body.text("password_hash")?, body.text("password")?) {
        (Some(""), _) => Ok(Password::Hashed(String::new())),
        (Some(hash), _) => {
            if !broker::password::is_taken(hash) {
                let why = "password_hash is none that can be checked: give an argon2id hash, or base64 of a salt of \
                           four bytes and SHA-256 or SHA-512";
                return Err(Problem::bad(why));
            }
            Ok(Password::Hashed(hash.to_owned()))
        }
        (None, Some("")) => Err(Problem::bad("password should not be empty")),
        (None, Some(password)) => Ok(Password::Plain(password.to_owned())),
        (None, None) => Ok(Password::Hashed(String::new())),
    }
}

/// A list, or a text with commas, as old versions have it.
pub(super) fn tags(body: &Body) -> Result<Vec<String>, Problem> {
    let not_text = || Problem::bad("tags should be a string or a list of strings");
    match body.find("tags") {
        None if body.find("administrator").is_some() => Ok(if body.flag("administrator", false)? {
            vec!["administrator".into()]
        } else {
            vec![]
        }),
        None => Err(crate::asked::missing("tags")),
        Some(Value::String(text)) => {
            let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
            Ok(tags.map(str::to_owned).collect())
        }
        Some(Value::Array(list)) => {
            let tags = list.iter().map(|tag| tag.as_str().map(str::to_owned).ok_or_else(not_text));
            tags.collect()
        }
        Some(_) => Err(not_text()),
    }
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let name = asked.part("user").to_owned();
    if view.catalog.user(&name).is_none() {
        return Err(Problem::NotFound);
    }
    let commands = vec![CatalogCommand::DeleteUser { name }];
    Ok(Work::Change { commands, reply: Reply::done() })
}

pub(super) fn bulk_delete(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let body = asked.object()?;
    if body.find("users").is_none() {
        return Err(crate::asked::missing("users"));
    }
    let name = |user: &Value| user.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = body.list("users")?.iter().map(name).collect();
    let names = names.ok_or_else(|| Problem::bad("users should be a list of names"))?;
    let commands = names.into_iter().map(|name| CatalogCommand::DeleteUser { name }).collect();
    Ok(Work::Change { commands, reply: Reply::done() })
}
