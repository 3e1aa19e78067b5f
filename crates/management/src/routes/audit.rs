//! The audit trail: what operators have changed lately, the newest first.

use machine::AuditRecord;
use serde_json::{Value, json};

use crate::arguments;
use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

/// Which records are wanted.
struct Filter<'a> {
    user: Option<&'a str>,
    vhost: Option<&'a str>,
    object: Option<&'a str>,
    /// Whole, or its beginning up to a dot: `user` for `user.created`.
    event: Option<&'a str>,
    since_ms: u64,
    until_ms: u64,
}

pub(super) fn list(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let shape = Shape::of(asked)?;
    let filter = Filter::of(asked)?;
    let records = view.catalog.audit();
    let total_count = records.len();
    let items = records.rev().filter(|record| filter.wants(record)).map(shown).collect();
    Ok(Work::Answer(shape.reply(items, total_count)))
}

impl<'a> Filter<'a> {
    fn of(asked: &'a Asked) -> Result<Self, Problem> {
        Ok(Self {
            user: asked.word("user"),
            vhost: asked.word("vhost"),
            object: asked.word("object"),
            event: asked.word("event"),
            since_ms: time(asked, "since")?.unwrap_or(0),
            until_ms: time(asked, "until")?.unwrap_or(u64::MAX),
        })
    }

    fn wants(&self, record: &AuditRecord) -> bool {
        let AuditRecord { number: _, at_ms, by, event } = record;
        let is = |wanted: Option<&str>, found: &str| wanted.is_none_or(|wanted| wanted == found);
        let is_event = self.event.is_none_or(|wanted| {
            let rest = event.name.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        is(self.user, &by.user)
            && is(self.vhost, &event.vhost)
            && is(self.object, &event.object)
            && is_event
            && (self.since_ms..=self.until_ms).contains(at_ms)
    }
}

/// A time of the query: milliseconds since 1970.
fn time(asked: &Asked, name: &str) -> Result<Option<u64>, Problem> {
    let Some(word) = asked.word(name) else { return Ok(None) };
    word.parse().map(Some).map_err(|_| {
        Problem::bad(format!("{name} should be a time in milliseconds since 1970, not '{word}'"))
    })
}

fn shown(record: &AuditRecord) -> Value {
    let AuditRecord { number, at_ms, by, event } = record;
    json!({
        "number": number,
        "time": at_ms,
        "user": by.user,
        "address": by.address,
        "event": event.name,
        "vhost": event.vhost,
        "object": event.object,
        "details": arguments::shown(&event.details),
    })
}
