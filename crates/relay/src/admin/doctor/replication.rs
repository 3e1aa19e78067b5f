//! Slots, the log they keep, publications.

use super::{Facts, is_poll};
use crate::admin::finding::Finding;
use crate::admin::words::{in_words, size};
use crate::config::{Config, Source};

/// An inactive slot that keeps more will fill a disk.
const KEPT_WARN_BYTES: i64 = 1 << 30;

pub(super) fn wal_level(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if is_poll(config) {
        return;
    }
    let server = &facts.server;
    findings.push(if server.wal_level == "logical" {
        Finding::ok("wal-level", "wal_level is logical")
    } else {
        Finding::fail(
            "wal-level",
            format!("wal_level is {}: there is nothing to decode", server.wal_level),
            "ALTER SYSTEM SET wal_level = 'logical'; and restart PostgreSQL",
        )
    });
    let used = i64::try_from(facts.slots.len()).unwrap_or(i64::MAX);
    let own = own_slot(config).is_some_and(|own| facts.slots.iter().any(|slot| slot.name == own));
    if !own && used >= server.slots_max {
        findings.push(Finding::fail(
            "slots",
            format!("all {} replication slots are used", server.slots_max),
            "Raise max_replication_slots (a restart), or drop one that nobody reads",
        ));
    }
}

fn own_slot(config: &Config) -> Option<&str> {
    match &config.source {
        Source::Poll => None,
        Source::Wal { slot, .. } | Source::Messages { slot, .. } => Some(slot),
    }
}

pub(super) fn slots(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let mut is_sound = true;
    for slot in &facts.slots {
        let kept = slot.kept_bytes.unwrap_or(0);
        let name = &slot.name;
        let whose =
            if slot.database.is_empty() { String::new() } else { format!(" of {}", slot.database) };
        let drop = format!("SELECT pg_drop_replication_slot({});", crate::sql::literal(name));
        let finding = match (slot.wal_status.as_str(), slot.is_active) {
            ("lost", _) => Some(Finding::fail(
                "slots",
                format!("slot {name}{whose} is lost: log that its reader needs was removed"),
                format!(
                    "If a relay used it: `millrace relay resync`, which publishes what is missing. Else: {drop}"
                ),
            )),
            ("unreserved", _) => Some(Finding::fail(
                "slots",
                format!("slot {name}{whose} is about to be lost: it keeps {}", size(kept as f64)),
                "Start its reader now, or raise max_slot_wal_keep_size before the next checkpoint",
            )),
            (_, false) if kept >= KEPT_WARN_BYTES => Some(Finding::fail(
                "slots",
                format!("slot {name}{whose} has no reader and keeps {} of log", size(kept as f64)),
                format!("Start its reader, or: {drop}"),
            )),
            (_, false) => Some(Finding::warn(
                "slots",
                format!(
                    "slot {name}{whose} has no reader; it keeps {} of log, and all that comes",
                    size(kept as f64)
                ),
                format!("Start its reader, or: {drop}"),
            )),
            (_, true) => None,
        };
        is_sound &= finding.is_none();
        findings.extend(finding);
    }
    if !facts.slots.is_empty() && facts.server.slot_wal_keep_bytes.is_none() {
        is_sound = false;
        findings.push(Finding::warn(
            "slots",
            "max_slot_wal_keep_size is not set: a slot without a reader fills the disk, and PostgreSQL stops",
            "Set it to what the disk can spare: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT \
             pg_reload_conf(); a slot that falls behind it is lost, and `millrace relay resync` mends that",
        ));
    }
    if is_sound && !is_poll(config) {
        findings.push(Finding::ok(
            "slots",
            format!("{} slots, each with its reader", facts.slots.len()),
        ));
    }
}

pub(super) fn known_slots(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    for slot in &facts.known_slots {
        let name = &slot.name;
        if !slot.is_there && slot.is_begun {
            findings.push(Finding::warn(
                "slots",
                format!("slot {name} of {} was asked for and is not made yet: nothing is published", slot.outbox),
                "A relay makes it as soon as transactions that were open have ended: let `millrace relay run` go on, or \
                 start it again",
            ));
        } else if !slot.is_there {
            findings.push(Finding::fail(
                "slots",
                format!("slot {name} of {} was used by a relay and is gone: changes since may not be published", slot.outbox),
                "`millrace relay resync` publishes what is missing and makes a new slot. Nothing else makes it anew",
            ));
        } else if !slot.has_publication && own_slot(config) == Some(name) {
            findings.push(Finding::fail(
                "slots",
                format!("publication {} of slot {name} is gone or does not publish inserts", slot.publication),
                "`millrace relay install` makes it; changes from before are not decoded for it: then `millrace relay resync`",
            ));
        } else if let (Some(seconds), true) = (slot.last_commit_seconds, slot.is_active) {
            let lag = size(slot.lag_bytes.unwrap_or(0) as f64);
            findings.push(Finding::ok(
                "slots",
                format!(
                    "slot {name} is read; {lag} behind, the last commit published is {} old",
                    in_words(seconds)
                ),
            ));
        }
    }
}

/// The relay reads inserts alone, so REPLICA IDENTITY does not matter to it; but another publication can make it matter.
pub(super) fn identity(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some(identity) = &facts.identity else { return };
    if identity.is_missing && !identity.publications.is_empty() {
        findings.push(Finding::fail(
            "identity",
            format!(
                "publication {} publishes updates or deletes of a table without a primary key: marking rows fails",
                identity.publications.join(", ")
            ),
            "Give the table a primary key, or take it out of that publication; the relay's own publishes inserts alone",
        ));
    } else if !is_poll(config) {
        findings.push(Finding::ok(
            "identity",
            "REPLICA IDENTITY does not matter: only inserts are read",
        ));
    }
}
