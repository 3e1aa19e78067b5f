//! Cron: jobs that are published at times of the calendar, once per tick however many workers run.
//!
//! A core: told what was fired last ([`State`]) and the time, it says which ticks are due. Who keeps the state, and
//! how only one worker changes it, is `io::coord::cron`.
//!
//! A tick is the instant (UTC, in milliseconds) at which a schedule fires. Every job of a tick has the message-id
//! `cron:NAME:TICK`, so a tick that is published twice after a crash can be told by its id.
//!
//! **Changes of the clock** (daylight saving). A schedule with one value each for second, minute and hour fires
//! once per day: where its local time does not exist it fires at the first instant after the gap, where it exists
//! twice it fires the first time. Every other schedule (`*`, lists, ranges, steps) follows the wall clock: times
//! that do not exist are skipped, times that exist twice fire twice. Both are told in the log at the change.
//!
//! **A clock that steps back** fires nothing again: nothing is due until it has passed the last tick. One that
//! steps forward makes ticks missed.

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, LocalResult, Offset, TimeZone, Utc};
use chrono_tz::Tz;
use croner::{Cron as Pattern, JobType};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::job::Message;
use crate::limits::{MISSED_MAX, NAME_BYTES_MAX, SCHEDULES_MAX};
use crate::settlement::Publish;
use crate::value::Time;

/// What becomes of ticks that passed while no worker was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The newest of them fires.
    #[default]
    Once,
    /// All fire, the newest `missed_max` of them.
    All,
}

/// `[[schedule]]`: one schedule of the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Names it for ever: what was fired last is kept under this name. 1 to 100 letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The source (`[source.NAME]`) whose broker it publishes to. None: the only one.
    pub source: Option<String>,
    /// `0 30 9 * * Mon-Fri`: second (may be left out), minute, hour, day, month, day of the week.
    pub cron: String,
    /// `Europe/Zurich`: the time zone that the times are in.
    #[serde(default = "utc")]
    pub zone: String,
    /// AMQP: the exchange; empty for the default one.
    #[serde(default)]
    pub exchange: String,
    /// AMQP: the routing key, with the default exchange the queue. Redis: the stream or list.
    pub routing_key: String,
    /// The type of the jobs.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub body: String,
    pub content_type: Option<String>,
    /// The order key.
    pub key: Option<String>,
    #[serde(default)]
    pub missed: Missed,
    /// How many missed ticks `missed = "all"` fires at most: 1 to 1000.
    #[serde(default = "missed_max")]
    pub missed_max: u32,
    /// A tick is missed once it is so late: 1s to 1h.
    #[serde(default = "late")]
    pub late: Time,
}

fn utc() -> String {
    "UTC".to_owned()
}

fn missed_max() -> u32 {
    100
}

fn late() -> Time {
    Time(std::time::Duration::from_secs(30))
}

impl Settings {
    /// What is wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !(1..=100).contains(&self.name.len()) || !self.name.chars().all(is_letter) {
            problems.push("`name` has 1 to 100 letters, digits, `-`, `_` or `.`".to_owned());
        }
        if let Err(error) = Pattern::from_str(&self.cron) {
            problems.push(format!("`cron = \"{}\"`: {error}", self.cron));
        }
        if self.zone.parse::<Tz>().is_err() {
            let zone = &self.zone;
            problems.push(format!("`zone = \"{zone}\"` is no time zone: write Europe/Zurich"));
        }
        if self.routing_key.is_empty() && self.exchange.is_empty() {
            problems.push("`routing_key` is empty: name a queue or an exchange".to_owned());
        }
        let names = [&self.exchange, &self.routing_key, &self.kind];
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            problems.push(format!("a name is longer than {NAME_BYTES_MAX} bytes"));
        }
        if !(1..=MISSED_MAX).contains(&self.missed_max) {
            problems.push(format!("`missed_max` is 1 to {MISSED_MAX}"));
        }
        if !(1..=3600).contains(&self.late.0.as_secs()) {
            problems.push("`late` is 1s to 1h".to_owned());
        }
        problems
    }
}

/// What was fired last: kept at the broker, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct State {
    /// Counts the changes: of two states the one with the higher number is the newer.
    pub revision: u64,
    /// The last tick of each schedule that is decided (fired or left out), in milliseconds since 1970.
    pub last: BTreeMap<String, i64>,
}

impl State {
    /// Two states, as found after a crash: the later tick of each schedule.
    pub fn merge(&mut self, other: Self) {
        self.revision = self.revision.max(other.revision);
        for (name, tick) in other.last {
            let known = self.last.entry(name).or_insert(tick);
            *known = (*known).max(tick);
        }
    }
}

/// A job to publish, and the tick that is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    pub name: String,
    pub tick_ms: i64,
    pub publish: Publish,
}

/// Something that an operator should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Ticks passed while no worker was there: so many are left out (at least), so many fire late.
    Missed { name: String, is_left_out: bool, late: usize },
    /// The zone's clock changed between this tick and the one before; what that does to this schedule.
    ClockChanged { name: String, zone: String, words: &'static str, seconds: i32 },
    /// The last tick lies ahead of the clock: nothing fires until the clock has passed it.
    ClockBehind { name: String, by_ms: i64 },
}

/// What is due for one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// To publish, in this order.
    pub fires: Vec<Fire>,
    /// Ticks to count as decided without a job: name and the newest such tick.
    pub skipped: Vec<(String, i64)>,
    pub notices: Vec<Notice>,
}

#[derive(Clone, Debug)]
struct Schedule {
    settings: Settings,
    pattern: Pattern,
    zone: Tz,
}

/// All schedules of a worker.
#[derive(Clone, Debug)]
pub struct Cron {
    schedules: Vec<Schedule>,
}

impl Cron {
    /// Schedules made ready.
    ///
    /// # Errors
    /// A schedule is wrong, or two have the same name.
    pub fn new(settings: Vec<Settings>) -> Result<Self, Error> {
        if settings.len() > SCHEDULES_MAX {
            return Err(Error::setup(format!("there are more than {SCHEDULES_MAX} schedules")));
        }
        let mut schedules: Vec<Schedule> = Vec::new();
        for settings in settings {
            let name = &settings.name;
            if let Some(problem) = settings.problems().first() {
                return Err(Error::setup(format!("schedule {name}: {problem}")));
            }
            if schedules.iter().any(|known| known.settings.name == *name) {
                return Err(Error::setup(format!("two schedules have the name {name}")));
            }
            let pattern = Pattern::from_str(&settings.cron).expect("its problems were looked for");
            let zone = settings.zone.parse().expect("its problems were looked for");
            schedules.push(Schedule { settings, pattern, zone });
        }
        Ok(Self { schedules })
    }

    pub fn is_empty(&self) -> bool {
        self.schedules.is_empty()
    }

    /// Names that the state does not know: a new schedule begins now, with no tick of the past.
    pub fn unknown<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a str> {
        let names = self.schedules.iter().map(|schedule| schedule.settings.name.as_str());
        names.filter(|name| !state.last.contains_key(*name))
    }

    /// What is due at `now_ms`, in the order of time.
    pub fn due(&self, state: &State, now_ms: i64) -> Due {
        let mut due = Due::default();
        for schedule in &self.schedules {
            if let Some(&last) = state.last.get(&schedule.settings.name) {
                schedule.due(last, now_ms, &mut due);
            }
        }
        due.fires.sort_by_key(|fire| fire.tick_ms);
        due
    }

    /// When the next tick comes, after `now_ms`; none: never.
    pub fn next(&self, now_ms: i64) -> Option<i64> {
        self.schedules.iter().filter_map(|schedule| schedule.after(now_ms)).min()
    }
}

impl Schedule {
    fn due(&self, last: i64, now_ms: i64, due: &mut Due) {
        let Settings { name, missed, missed_max, late, .. } = &self.settings;
        if last > now_ms {
            let by_ms = last - now_ms;
            due.notices.push(Notice::ClockBehind { name: name.clone(), by_ms });
            return;
        }
        let from = if cfg!(bug_cron_refire) { last - 1 } else { last };
        let late_ms = i64::try_from(late.0.as_millis()).expect("it is at most an hour");
        // Newest first: however long nobody was there, no more is looked at than may fire.
        let (mut fires, mut left_out, mut missed_count) = (Vec::new(), None, 0);
        let mut before = now_ms;
        while let Some(tick) = self.at_or_before(before).filter(|&tick| tick > from) {
            let is_missed = now_ms - tick > late_ms;
            missed_count += usize::from(is_missed);
            let may_fire = match missed {
                _ if !is_missed => true,
                Missed::Skip => false,
                Missed::Once => missed_count == 1,
                Missed::All => missed_count <= *missed_max as usize,
            };
            if !may_fire {
                left_out = Some(tick);
                break;
            }
            fires.push(tick);
            before = tick - 1;
        }
        if missed_count > 0 {
            let late = missed_count - usize::from(left_out.is_some());
            let is_left_out = left_out.is_some();
            due.notices.push(Notice::Missed { name: name.clone(), is_left_out, late });
        }
        if let Some(&newest) = fires.first().or(left_out.as_ref()) {
            due.notices.extend(self.clock_change(last, newest));
        }
        due.skipped.extend(left_out.map(|tick| (name.clone(), tick)));
        due.fires.extend(fires.into_iter().rev().map(|tick| self.fire(tick)));
    }

    fn fire(&self, tick_ms: i64) -> Fire {
        let Settings { name, exchange, routing_key, kind, body, content_type, key, .. } =
            &self.settings;
        let message = Message {
            id: format!("cron:{name}:{tick_ms}"),
            kind: kind.clone(),
            content_type: content_type.clone(),
            headers: Vec::new(),
            body: body.clone().into(),
            attempt: 1,
            extras: None,
        };
        let (exchange, routing_key, key) = (exchange.clone(), routing_key.clone(), key.clone());
        let publish = Publish { exchange, routing_key, message, key, delay: None };
        Fire { name: name.clone(), tick_ms, publish }
    }

    fn local(&self, ms: i64) -> Option<DateTime<Tz>> {
        Some(DateTime::<Utc>::from_timestamp_millis(ms)?.with_timezone(&self.zone))
    }

    /// The newest tick that is not after `ms`.
    fn at_or_before(&self, ms: i64) -> Option<i64> {
        let whole = self.local(ms.div_euclid(1000) * 1000)?;
        let tick = self.pattern.find_previous_occurrence(&whole, true).ok()?;
        Some(tick.timestamp_millis())
    }

    /// The first tick after `ms`.
    fn after(&self, ms: i64) -> Option<i64> {
        let whole = self.local(ms.div_euclid(1000) * 1000)?;
        let tick = self.pattern.find_next_occurrence(&whole, false).ok()?;
        Some(tick.timestamp_millis())
    }

    /// Whether the zone's clock changed between two ticks, and what that does here.
    fn clock_change(&self, last: i64, tick: i64) -> Option<Notice> {
        let (before, after) = (self.local(last)?, self.local(tick)?);
        let seconds = |time: &DateTime<Tz>| time.offset().fix().local_minus_utc();
        let change = seconds(&after) - seconds(&before);
        let is_fixed = self.pattern.determine_job_type() == JobType::FixedTime;
        let is_twice = matches!(
            self.zone.from_local_datetime(&after.naive_local()),
            LocalResult::Ambiguous(_, _)
        );
        let words = match (change, is_fixed) {
            (0, true) if is_twice => "this local time exists twice: it fires the first time",
            (0, _) => return None,
            (1.., true) if !self.pattern.is_time_matching(&after).unwrap_or(true) => {
                "its local time did not exist: it fires at the first instant after the gap"
            }
            (1.., false) => "local times that did not exist are skipped",
            (..=-1, false) => "local times that exist twice fire twice",
            (_, true) => "it keeps its local time",
        };
        let (name, zone) = (self.settings.name.clone(), self.settings.zone.clone());
        Some(Notice::ClockChanged { name, zone, words, seconds: change })
    }
}

#[cfg(test)]
mod tests;
