//! Connections, channels and consumers of all nodes.
//!
//! Who monitors sees all of them; others see their own.

use machine::Version;

use crate::access::{Role, Who};
use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::{Connections, Of, Work};

/// The reason that a client is told if nobody gives one.
const REASON: &str = "Closed via management plugin";

fn user<'a>(view: &View<'a>, asked: &'a Asked) -> Result<Who<'a>, Problem> {
    asked.who(view.catalog)
}

/// Those that the user may see.
fn seen(view: &View<'_>, asked: &Asked, what: Of, vhost: Option<&str>) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    let all = Role::of(user).monitors;
    if let Some(vhost) = vhost {
        view.catalog.vhost(vhost).ok_or(Problem::NotFound)?;
    }
    Ok(Work::Connections(Connections {
        what,
        user: (!all).then(|| user.name().to_owned()),
        vhost: vhost.map(str::to_owned),
        holding: false,
        shape: Shape::of(asked)?,
    }))
}

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Connections, None)
}

pub(super) fn of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Connections, Some(asked.vhost()))
}

pub(super) fn one(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Connection(asked.part("connection").to_owned()), None)
}

pub(super) fn of_user(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Connections(Connections {
        what: Of::Connections,
        user: Some(asked.part("user").to_owned()),
        vhost: None,
        holding: false,
        shape: Shape::of(asked)?,
    }))
}

pub(super) fn channels(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Channels(None), None)
}

pub(super) fn channels_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Channels(None), Some(asked.vhost()))
}

pub(super) fn channels_of(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Channels(Some(asked.part("connection").to_owned())), None)
}

pub(super) fn channel(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Channel(asked.part("channel").to_owned()), None)
}

pub(super) fn consumers(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Consumers, None)
}

pub(super) fn consumers_of_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    seen(view, asked, Of::Consumers, Some(asked.vhost()))
}

/// Consumers that hold messages, who has held one for longest first.
pub(super) fn held(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    match seen(view, asked, Of::Consumers, None)? {
        Work::Connections(wanted) => Ok(Work::Connections(Connections { holding: true, ..wanted })),
        other => Ok(other),
    }
}

/// Who administrates closes any; others close their own.
pub(super) fn close(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = user(view, asked)?;
    let name = asked.part("connection").to_owned();
    let reason = asked.reason.clone().unwrap_or_else(|| REASON.to_owned());
    Ok(Work::Connections(Connections {
        what: Of::Close { name, reason },
        user: (!Role::of(user).administrates).then(|| user.name().to_owned()),
        vhost: None,
        holding: false,
        shape: Shape::default(),
    }))
}

pub(super) fn pause(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    set_pause(view, asked, Some(asked.user.clone()))
}

pub(super) fn resume(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    set_pause(view, asked, None)
}

/// Who administrates pauses any consumer; others those of their own connections, as they may close these.
fn set_pause(view: &View<'_>, asked: &Asked, by: Option<String>) -> Result<Work, Problem> {
    let (agreed, since) = (view.catalog.agreed(), Version::CONSUMER_CHANGES);
    if agreed < since {
        return Err(Problem::Unavailable(format!(
            "a consumer can be paused from version {since} of the cluster on, which all nodes have not agreed on yet: it \
             has {agreed}"
        )));
    }
    let user = user(view, asked)?;
    let (channel, tag) = (asked.part("channel").to_owned(), asked.part("tag").to_owned());
    Ok(Work::Connections(Connections {
        what: Of::Pause { channel, tag, by },
        user: (!Role::of(user).administrates).then(|| user.name().to_owned()),
        vhost: None,
        holding: false,
        shape: Shape::default(),
    }))
}

pub(super) fn close_of_user(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.part("user").to_owned();
    let reason = asked.reason.clone().unwrap_or_else(|| REASON.to_owned());
    Ok(Work::Connections(Connections {
        what: Of::CloseAll { user, reason },
        user: None,
        vhost: None,
        holding: false,
        shape: Shape::default(),
    }))
}
