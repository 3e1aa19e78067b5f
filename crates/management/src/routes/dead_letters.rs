//! Dead letters: which queues have them, and what a queue has of them.

use std::collections::{BTreeMap, BTreeSet};

use broker::dead_letter::Story;
use machine::{Destination, Queue, Vhost};
use serde_json::{Value, json};

use crate::access;
use crate::asked::Asked;
use crate::limits::{DEATHS_GROUPS_MAX, NAME_BYTES_MAX};
use crate::node::View;
use crate::reply::Problem;
use crate::work::{Deaths, Work};

/// Queues that dead letters go to: of all vhosts that the user sees.
pub(super) fn queues(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    super::queues::shaped(asked, seen.flat_map(targets).collect(), super::queues::Order::Any)
}

/// Those of a vhost: what dead-letter exchanges lead to by a binding, whatever its key, and what keeps messages aside.
fn targets(vhost: &Vhost) -> Vec<&Queue> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut exchanges: BTreeSet<&str> = BTreeSet::new();
    for queue in vhost.queues() {
        match queue.dead_letter_exchange() {
            Some("") => drop(names.insert(queue.dead_letter_key().unwrap_or(&queue.name))),
            Some(exchange) => drop(exchanges.insert(exchange)),
            None => {}
        }
        if queue.name.strip_suffix(".dead").is_some_and(|of| vhost.queue(of).is_some()) {
            names.insert(&queue.name);
        }
    }
    for binding in vhost.bindings().filter(|binding| exchanges.contains(&*binding.source)) {
        if let Destination::Queue(name) = &binding.destination {
            names.insert(name);
        }
    }
    names.into_iter().filter_map(|name| vhost.queue(name)).collect()
}

/// Dead letters of a queue, by where they died and why.
pub(super) fn deaths(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    Ok(Work::Deaths(Deaths { place: (queue.group, queue.id), name: queue.name.clone() }))
}

/// Messages of a queue, by the queue that they died in last, and the reason.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    seen: u64,
    groups: BTreeMap<(String, String), Group>,
    /// In groups for which there is no room.
    others: u64,
}

/// Dead letters that died in one queue of one reason.
#[derive(Debug, Default)]
struct Group {
    count: u64,
    /// When the first and the last of them died, seconds since 1970.
    first_s: u64,
    last_s: u64,
    /// The highest count of operators' retries.
    retries: u32,
    /// Where the first of them lies.
    first: String,
}

impl Summary {
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// One message more, which lies at `position`.
    pub(crate) fn add(&mut self, story: &Story, position: String) {
        self.seen += 1;
        let death = story.death.as_ref();
        let text =
            |text: Option<&String>| text.map_or(String::new(), |text| short(text).to_owned());
        let grave = (text(death.map(|it| &it.queue)), text(death.map(|it| &it.reason)));
        if self.groups.len() >= DEATHS_GROUPS_MAX && !self.groups.contains_key(&grave) {
            self.others += 1;
            return;
        }
        let time_s = death.map_or(0, |death| death.time_s);
        let fresh = || Group { first_s: time_s, first: position, ..Group::default() };
        let group = self.groups.entry(grave).or_insert_with(fresh);
        group.count += 1;
        group.first_s = group.first_s.min(time_s);
        group.last_s = group.last_s.max(time_s);
        group.retries = group.retries.max(story.retries);
    }

    /// `is_whole`: all messages were looked at.
    pub(crate) fn shown(&self, is_whole: bool) -> Value {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(grave, group)| (std::cmp::Reverse(group.count), *grave));
        let told = |text: &String| (!text.is_empty()).then(|| text.clone());
        let at_ms = |time_s: u64| (time_s > 0).then(|| time_s.saturating_mul(1000));
        let shown = groups.into_iter().map(|((queue, reason), group)| {
            json!({
                "died_in": told(queue),
                "reason": told(reason),
                "count": group.count,
                "first_died_at": at_ms(group.first_s),
                "last_died_at": at_ms(group.last_s),
                "retries_max": group.retries,
                "first_position": group.first,
            })
        });
        json!({
            "seen": self.seen,
            "whole": is_whole,
            "groups": shown.collect::<Vec<_>>(),
            "others": self.others,
        })
    }
}

/// A text of a message's headers, which may be anything.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}
