//! Dead letters: which queues have them, and what a queue has of them.

use std::collections::{BTreeMap, BTreeSet};

use broker::dead_letter::Story;
use machine::{Destination, GroupId, Queue, QueueId, Vhost};
use serde_json::{Value, json};

use crate::access;
use crate::asked::Asked;
use crate::limits::{
    DEATHS_EVERYWHERE_GROUPS_MAX, DEATHS_GROUPS_MAX, DEATHS_QUEUES_MAX, NAME_BYTES_MAX,
};
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
    Ok(Work::Deaths(deaths_of(queue, (queue.group, queue.id))))
}

fn deaths_of(queue: &Queue, place: (GroupId, QueueId)) -> Deaths {
    Deaths { place, vhost: queue.vhost.clone(), name: queue.name.clone() }
}

/// Dead letters of all queues that the user sees, by the queue that they lie in, where they died and why.
pub(super) fn everywhere(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let user = asked.who(view.catalog)?;
    let seen = view.catalog.vhosts().filter(|vhost| access::sees(user, vhost.name()));
    let mut queues = seen
        .flat_map(targets)
        .flat_map(|queue| queue.partitions().map(move |it| deaths_of(queue, (it.group, it.queue))));
    let first: Vec<Deaths> = queues.by_ref().take(DEATHS_QUEUES_MAX).collect();
    Ok(Work::DeathsEverywhere { queues: first, is_cut: queues.next().is_some() })
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

/// Dead letters of several queues, by where they lie, the queue that they died in last, and the reason.
#[derive(Debug, Default)]
pub(crate) struct Everywhere {
    seen: u64,
    groups: BTreeMap<Grave, Ages>,
    /// Some are in groups for which there is no room.
    is_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grave {
    vhost: String,
    queue: String,
    /// Empty: the messages do not say.
    died_in: String,
    reason: String,
}

/// How many messages a group has, and when they died.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    messages: u64,
    oldest_ms: Option<u64>,
    newest_ms: Option<u64>,
}

impl Everywhere {
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// One message more of a queue. It died when it says so, or at the latest when it came there.
    pub(crate) fn add(&mut self, of: &Deaths, story: &Story, enqueued_ms: Option<u64>) {
        self.seen += 1;
        let death = story.death.as_ref();
        let grave = Grave {
            vhost: of.vhost.clone(),
            queue: of.name.clone(),
            died_in: death.map_or("", |death| short(&death.queue)).to_owned(),
            reason: death.map_or("", |death| short(&death.reason)).to_owned(),
        };
        if self.groups.len() >= DEATHS_EVERYWHERE_GROUPS_MAX && !self.groups.contains_key(&grave) {
            self.is_full = true;
            return;
        }
        let told_s = death.map(|death| death.time_s).filter(|time_s| *time_s > 0);
        let died_ms = told_s.map(|time_s| time_s.saturating_mul(1000)).or(enqueued_ms);
        let ages = self.groups.entry(grave).or_default();
        ages.messages += 1;
        ages.oldest_ms = ages.oldest_ms.into_iter().chain(died_ms).min();
        ages.newest_ms = ages.newest_ms.into_iter().chain(died_ms).max();
    }

    /// `is_whole`: all messages of all queues were looked at.
    pub(crate) fn shown(&self, is_whole: bool) -> Value {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(grave, ages)| (std::cmp::Reverse(ages.messages), *grave));
        let told = |text: &String| (!text.is_empty()).then(|| text.clone());
        let shown = groups.into_iter().map(|(grave, ages)| {
            json!({
                "vhost": grave.vhost,
                "queue": grave.queue,
                "reason": told(&grave.reason),
                "died_in": told(&grave.died_in),
                "messages": ages.messages,
                "oldest_at": ages.oldest_ms,
                "newest_at": ages.newest_ms,
            })
        });
        let is_complete = is_whole && !self.is_full;
        json!({ "groups": shown.collect::<Vec<_>>(), "complete": is_complete })
    }
}

/// A text of a message's headers, which may be anything.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use broker::dead_letter::ToldDeath;
    use machine::{Applied, Arguments, Catalog, CatalogCommand, NodeId, SessionId, SessionOwner};

    use super::*;
    use crate::node::tests::facts;
    use crate::problems::tests::node;

    /// So many queues, each with one beside it for what it gives up.
    fn queues_with_dead(count: usize) -> Catalog {
        let mut catalog = Catalog::genesis(&[node(1)], 1);
        let names = (0..count).flat_map(|at| [format!("q{at}"), format!("q{at}.dead")]);
        for (index, name) in (1..).zip(names) {
            let declare = CatalogCommand::DeclareQueue {
                vhost: "/".to_owned(),
                name,
                durable: true,
                auto_delete: false,
                exclusive: false,
                server_named: false,
                arguments: Arguments::new(),
                by: SessionOwner { node: NodeId(1), session: SessionId(1) },
            };
            catalog.apply(Applied { index, time_ms: 0 }, declare, &mut Vec::new());
        }
        catalog
    }

    #[test]
    fn so_many_queues_are_looked_at_and_it_is_said_when_there_are_more() {
        let asked = Asked { user: "guest".to_owned(), ..Asked::default() };
        for (count, cut) in [(DEATHS_QUEUES_MAX, false), (DEATHS_QUEUES_MAX + 1, true)] {
            let (catalog, facts) = (queues_with_dead(count), facts());
            let work = everywhere(&View { catalog: &catalog, facts: &facts }, &asked);
            let Ok(Work::DeathsEverywhere { queues, is_cut }) = work else { panic!("{work:?}") };
            assert_eq!((queues.len(), is_cut), (DEATHS_QUEUES_MAX, cut), "{count}");
        }
    }

    fn story(queue: &str, reason: &str, time_s: u64) -> Story {
        let (exchange, key) = (String::new(), queue.to_owned());
        let (queue, reason) = (queue.to_owned(), reason.to_owned());
        let death = ToldDeath { queue, reason, exchange, key, count: 1, time_s };
        Story { death: Some(death), retries: 0 }
    }

    fn of(vhost: &str, name: &str) -> Deaths {
        let place = (GroupId(1), QueueId(1));
        Deaths { place, vhost: vhost.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn groups_of_all_queues_are_in_the_order_of_their_messages_with_their_ages() {
        let mut all = Everywhere::default();
        let (dead, other) = (of("/", "dead"), of("shop", "dead"));
        all.add(&dead, &story("jobs", "expired", 7), Some(1));
        all.add(&dead, &story("jobs", "rejected", 7), Some(1));
        all.add(&dead, &story("jobs", "rejected", 5), None);
        all.add(&other, &story("jobs", "rejected", 0), Some(9_001));
        all.add(&other, &story("jobs", "rejected", 9), Some(1));
        all.add(&other, &story("jobs", "rejected", 0), None);
        all.add(&dead, &Story::default(), None);
        let shown = all.shown(true);
        let row = |vhost: &str, reason: &str, messages: u64, ages: [u64; 2]| {
            json!({
                "vhost": vhost, "queue": "dead", "reason": reason, "died_in": "jobs",
                "messages": messages, "oldest_at": ages[0], "newest_at": ages[1],
            })
        };
        let groups = shown["groups"].as_array().unwrap();
        assert_eq!(groups[0], row("shop", "rejected", 3, [9_000, 9_001]));
        assert_eq!(groups[1], row("/", "rejected", 2, [5_000, 7_000]));
        assert_eq!(groups[3], row("/", "expired", 1, [7_000, 7_000]));
        let untold = &groups[2];
        let fields = ["reason", "died_in", "oldest_at", "newest_at"];
        assert!(fields.iter().all(|name| untold[name].is_null()), "{untold}");
        assert_eq!((&untold["messages"], groups.len()), (&json!(1), 4));
        assert_eq!(shown["complete"], true);
        assert_eq!(all.shown(false)["complete"], false);
    }

    #[test]
    fn groups_without_room_are_said_to_be_missing() {
        let mut all = Everywhere::default();
        for number in 0..DEATHS_EVERYWHERE_GROUPS_MAX {
            all.add(&of("/", "dead"), &story(&number.to_string(), "rejected", 1), None);
        }
        assert_eq!(all.shown(true)["complete"], true);
        all.add(&of("/", "dead"), &story("0", "rejected", 1), None);
        assert_eq!(all.shown(true)["complete"], true, "it has a group");
        all.add(&of("/", "dead"), &story("one more", "rejected", 1), None);
        let shown = all.shown(true);
        assert_eq!(shown["complete"], false);
        assert_eq!(shown["groups"].as_array().unwrap().len(), DEATHS_EVERYWHERE_GROUPS_MAX);
    }
}
