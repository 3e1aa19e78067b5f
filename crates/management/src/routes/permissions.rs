//! What users may do in vhosts.

use machine::{CatalogCommand, Permissions, User};
use serde_json::{Value, json};

use crate::asked::{Asked, Body};
use crate::node::View;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let items = view.catalog.users().flat_map(of).collect();
    Ok(Work::list(&Shape::of(asked)?, items))
}

pub(super) fn of_user(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)?;
    Ok(Work::list(&Shape::of(asked)?, of(user).collect()))
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = asked.vhost();
    view.catalog.vhost(vhost).ok_or(Problem::NotFound)?;
    let users = view.catalog.users();
    let items = users.filter_map(|user| Some(shown(user, vhost, user.permissions(vhost)?)));
    Ok(Work::list(&Shape::of(asked)?, items.collect()))
}

/// All permissions of a user.
pub(super) fn of(user: &User) -> impl Iterator<Item = Value> {
    user.all_permissions().map(|(vhost, permissions)| shown(user, vhost, permissions))
}

fn shown(user: &User, vhost: &str, permissions: &Permissions) -> Value {
    json!({
        "user": user.name,
        "vhost": vhost,
        "configure": permissions.configure.text(),
        "write": permissions.write.text(),
        "read": permissions.read.text(),
    })
}

/// The user, if the path's vhost and user are there.
pub(super) fn user<'a>(view: &View<'a>, asked: &Asked) -> Result<&'a User, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    view.catalog.user(asked.part("user")).ok_or(Problem::NotFound)
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    let permissions = user.permissions(asked.vhost()).ok_or(Problem::NotFound)?;
    Ok(Work::answer(shown(user, asked.vhost(), permissions)))
}

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    let reply = Reply::put(user.permissions(asked.vhost()).is_some());
    let command = set(&user.name, asked.vhost(), &asked.object()?)?;
    Ok(Work::Change { commands: vec![command], reply })
}

/// What a body says.
pub(super) fn set(user: &str, vhost: &str, body: &Body) -> Result<CatalogCommand, Problem> {
    Ok(CatalogCommand::SetPermissions {
        user: user.to_owned(),
        vhost: vhost.to_owned(),
        configure: body.needed("configure")?.to_owned(),
        write: body.needed("write")?.to_owned(),
        read: body.needed("read")?.to_owned(),
    })
}

/// Everything.
pub(super) fn all(user: &str, vhost: &str) -> CatalogCommand {
    let all = || ".*".to_owned();
    CatalogCommand::SetPermissions {
        user: user.to_owned(),
        vhost: vhost.to_owned(),
        configure: all(),
        write: all(),
        read: all(),
    }
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    if user.permissions(asked.vhost()).is_none() {
        return Err(Problem::NotFound);
    }
    let (user, vhost) = (user.name.clone(), asked.vhost().to_owned());
    let commands = vec![CatalogCommand::ClearPermissions { user, vhost }];
    Ok(Work::Change { commands, reply: Reply::done() })
}
