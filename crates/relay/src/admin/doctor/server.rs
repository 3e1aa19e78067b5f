//! The server and the connection to it.

use super::{Facts, is_poll};
use crate::admin::finding::Finding;
use crate::admin::words::in_words;
use crate::config::Config;

/// The oldest that these statements are written for: logical messages, scans of a range of blocks.
const VERSION_MIN: i32 = 140_000;
/// Clocks that differ by less are as good as the same: only ages and timestamps come from them.
const CLOCK_WARN_SECONDS: f64 = 2.0;
const CLOCK_FAIL_SECONDS: f64 = 60.0;

pub(super) fn version(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let version = facts.server.version;
    let (major, minor) = (version / 10_000, version % 10_000);
    findings.push(if facts.server.is_standby {
        Finding::fail(
            "server",
            "this is a standby: nothing can be marked here",
            "Give the URL of the primary (with several hosts: target_session_attrs=read-write)",
        )
    } else if version < VERSION_MIN {
        let what = format!(
            "PostgreSQL {major}.{minor} is older than {}: nothing is promised",
            VERSION_MIN / 10_000
        );
        match is_poll(config) {
            true => Finding::warn("server", what, "Upgrade PostgreSQL"),
            false => Finding::fail("server", what, "Upgrade PostgreSQL, or poll"),
        }
    } else {
        Finding::ok("server", format!("PostgreSQL {major}.{minor}, as {}", facts.server.role))
    });
}

pub(super) fn durability(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let server = &facts.server;
    let mut is_sound = true;
    let mut find = |finding| {
        is_sound = false;
        findings.push(finding);
    };
    if !server.fsync || !server.full_page_writes {
        let which = if server.fsync { "full_page_writes" } else { "fsync" };
        find(Finding::fail(
            "durability",
            format!("{which} is off: a power cut can destroy the outbox with the rest"),
            format!("ALTER SYSTEM SET {which} = on; SELECT pg_reload_conf();"),
        ));
    }
    if server.synchronous_commit == "off" {
        find(Finding::warn(
            "durability",
            "synchronous_commit is off: a commit that the application was told of may be gone after a crash, \
             after its message was published or before",
            "Set it to on for the role that writes the outbox",
        ));
    }
    if facts.shape.as_ref().is_some_and(|shape| shape.persistence != "p") {
        find(Finding::fail(
            "durability",
            "the table is UNLOGGED or TEMPORARY: a crash of PostgreSQL empties it",
            "ALTER TABLE … SET LOGGED;",
        ));
    }
    if is_sound {
        findings.push(Finding::ok(
            "durability",
            "fsync, full_page_writes and synchronous_commit are on",
        ));
    }
}

pub(super) fn tls(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let server = &facts.server;
    findings.push(match (server.is_remote, server.uses_tls) {
        (_, true) => Finding::ok("tls", "the connection to PostgreSQL is encrypted and verified"),
        (false, false) => Finding::ok("tls", "PostgreSQL is on this machine; no TLS is used"),
        (true, false) => Finding::fail(
            "tls",
            "PostgreSQL is on another machine, and rows and password travel in the clear",
            "Use sslmode=verify-full (with sslrootcert=FILE for an authority of your own)",
        ),
    });
    broker_tls(config, findings);
}

pub(crate) fn broker_tls(config: &Config, findings: &mut Vec<Finding>) {
    let host = &config.broker.host;
    let is_local = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_local && config.broker.tls.is_none() {
        findings.push(Finding::warn(
            "tls",
            format!("the broker {host} is on another machine, and amqp:// travels in the clear"),
            "Use amqps:// where the broker has TLS",
        ));
    }
}

pub(super) fn clock(_: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let Some((offset, half_trip)) = facts.clock else { return };
    let least = (offset.abs() - half_trip).max(0.0);
    let how = if offset > 0.0 { "ahead of" } else { "behind" };
    let what = format!("the database's clock is {} {how} this machine's", in_words(offset.abs()));
    let advice = "Ages and timestamps of messages come from the database; run NTP (chrony) on both";
    findings.push(match least {
        least if least < CLOCK_WARN_SECONDS => {
            Finding::ok("clock", "as here, within a second or two")
        }
        least if least < CLOCK_FAIL_SECONDS => Finding::warn("clock", what, advice),
        _ => Finding::fail("clock", what, advice),
    });
}

pub(super) fn timeouts(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    if !is_poll(config) {
        return;
    }
    let deadline = i64::try_from(config.batch_deadline.as_millis()).unwrap_or(i64::MAX);
    let server = &facts.server;
    // The one timeout that workers do not set for themselves.
    let ms = server.transaction_timeout_ms;
    if ms > 0 && ms <= deadline {
        findings.push(Finding::fail(
            "timeouts",
            format!(
                "transaction_timeout is {ms} ms, and a batch may hold its transaction for {deadline} ms"
            ),
            format!(
                "ALTER ROLE {} SET transaction_timeout = '{} s'; or a shorter --batch-deadline",
                crate::sql::quoted(&server.role),
                deadline / 1000 + 5
            ),
        ));
    }
}

pub(super) fn connections(config: &Config, facts: &Facts, findings: &mut Vec<Finding>) {
    let server = &facts.server;
    let needed = i64::from(config.workers) + 2;
    let free = server.connections_max - server.connections;
    if server.relays == 0 && free < needed {
        findings.push(Finding::fail(
            "connections",
            format!(
                "{} of {} connections are used: a relay with {} workers needs {needed}",
                server.connections, server.connections_max, config.workers
            ),
            "Raise max_connections, or give --workers less. A pooler in transaction mode does not do: \
             the relay keeps locks and prepared statements in its sessions",
        ));
    }
}
