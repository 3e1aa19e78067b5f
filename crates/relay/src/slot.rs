//! What to do about a replication slot at the start: PostgreSQL's word and our own memory of it, put together.
//!
//! A slot that was used and is gone means changes that nobody has seen. It is never made anew in silence.
//!
//! ```text
//! unknown --record--> begun --slot made, table read--> confirmed --slot gone--> refused --resync--> begun
//! ```
//! The record comes first and says "begun" until the table was read once: a relay that dies anywhere in between
//! begins again, and may publish rows twice but never leaves one out.
//!
//! Our memory is also the better one: PostgreSQL writes a slot's place down at checkpoints, and after a crash goes back
//! to the last that it wrote, which may be minutes of changes ago. [`resume`] says when ours may be taken.

use crate::error::Error;
use crate::label::hash;
use crate::limits::NAME_BYTES_MAX;
use crate::lsn::Lsn;
use crate::progress::{CommitTime, Partial, Reached};

/// What `millrace.relay_slots` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// None: begun, and the table is not read yet.
    pub(crate) confirmed: Option<Lsn>,
    pub(crate) outbox: String,
    /// When that was written, as text for errors.
    pub(crate) confirmed_at: Option<String>,
    /// The database can count with it: microseconds since 2000.
    pub(crate) last_commit: Option<i64>,
    /// What is done of the transaction behind that.
    pub(crate) partial: Option<Partial>,
    /// Where these are places of. None: an older relay did not say.
    pub(crate) history: Option<History>,
    /// Why the slot cannot be read on, though it is there and looks well.
    pub(crate) lost: Option<String>,
    /// As what the table was published. None: an older relay did not say.
    pub(crate) published: Option<String>,
}

/// One course of a database's log: places of two of them do not compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The system identifier: of a data directory and all its physical copies.
    pub(crate) system: String,
    /// Another after each promotion and each recovery to an earlier point.
    pub(crate) timeline: i32,
}

/// The server that the slot is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) history: History,
    /// Its log is durable up to here.
    pub(crate) flushed: Lsn,
}

/// What `pg_replication_slots` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) plugin: Option<String>,
    pub(crate) is_of_this_database: bool,
    pub(crate) is_active: bool,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub(crate) wal_status: Option<String>,
    pub(crate) confirmed: Option<Lsn>,
}

impl Found {
    fn is_lost(&self) -> bool {
        self.wal_status.as_deref() == Some("lost")
    }

    /// Whether it still holds all that follows what is recorded: another need not be made.
    pub(crate) fn is_usable(&self, recorded: Option<&Recorded>) -> bool {
        let is_ahead = recorded.and_then(|recorded| recorded.confirmed) < self.confirmed;
        let was_lost = recorded.is_some_and(|recorded| recorded.lost.is_some());
        !self.is_lost() && !is_ahead && !was_lost
    }
}

/// How to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Go on from here.
    Stream(Reached),
    /// Make the slot if it is not there, read the table, then go on.
    Begin { make_slot: bool },
}

/// What a slot was called, in whatever database, where nobody named one. Those that there are go on being used.
pub(crate) const OLD_DEFAULT: &str = "millrace_relay";

/// What the slot for `database` is called where nobody names one. Slots are of the server, not of a database: the name
/// must be another for each.
pub(crate) fn default_name(database: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let room = NAME_BYTES_MAX - OLD_DEFAULT.len() - 1;
    if database.len() <= room && database.chars().all(fits) {
        return format!("{OLD_DEFAULT}_{database}");
    }
    let plain = |c: char| if fits(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '_' };
    let hash = hash(database.as_bytes());
    let begin: String = database.chars().map(plain).take(room - hash.len() - 1).collect();
    format!("{OLD_DEFAULT}_{begin}_{hash}")
}

/// The same for a source with a name. Names of sources have no dot: no two pairs make one text, and the name of a slot
/// has the hash of it.
pub(crate) fn source_name(database: &str, source: &str) -> String {
    default_name(&format!("{database}.{source}"))
}

/// Puts the two together.
///
/// # Errors
/// Changes may be missing, or the slot is not ours: what to do is said.
pub(crate) fn plan(
    slot: &str,
    outbox: &str,
    recorded: Option<&Recorded>,
    found: Option<&Found>,
    server: &Server,
) -> Result<Plan, Error> {
    if let Some(recorded) = recorded.filter(|recorded| recorded.outbox != outbox) {
        return Err(Error::setup(format!(
            "replication slot `{slot}` is used for {}, not for {outbox}: name another with --slot",
            recorded.outbox
        )));
    }
    if let Some(found) = found {
        check(slot, found)?;
        if let Some(text) = recorded.and_then(|recorded| recorded.lost.clone()) {
            return Err(Error::SlotLost { text });
        }
    }
    let used = recorded.and_then(|recorded| Some((recorded, recorded.confirmed?)));
    match (used, found) {
        (None, Some(found)) if found.is_lost() => {
            Err(lost(slot, outbox, recorded, "is invalidated before it was ever read"))
        }
        (None, found) => Ok(Plan::Begin { make_slot: found.is_none() }),
        (Some((recorded, confirmed)), Some(found)) if !found.is_lost() => {
            let was_on = recorded.history.as_ref().map(|history| &history.system);
            if let Some(system) = was_on.filter(|system| **system != server.history.system) {
                let text = format!(
                    "is on another server than the one this relay has read (system identifier {}, not {system}): \
                     the database was restored from a dump, or upgraded",
                    server.history.system
                );
                return Err(lost(slot, outbox, Some(recorded), &text));
            }
            if found.confirmed > Some(confirmed) {
                let text = format!(
                    "stands at {}, but this relay has confirmed only {confirmed}: somebody advanced it or made \
                     it anew",
                    found.confirmed.unwrap_or_default()
                );
                return Err(lost(slot, outbox, Some(recorded), &text));
            }
            Ok(Plan::Stream(resume(recorded, found.confirmed.unwrap_or_default(), server)))
        }
        (Some(_), Some(_)) => Err(lost(
            slot,
            outbox,
            recorded,
            "is invalidated: it needed more log than max_slot_wal_keep_size keeps",
        )),
        (Some(_), None) => Err(lost(slot, outbox, recorded, "is gone")),
    }
}

/// Where to go on with a slot that stands at `slot`, not behind what is recorded.
///
/// What is recorded is confirmed by the broker, or stored among the failures; and whatever commits before the place that
/// is asked for, PostgreSQL leaves out. So our place may be asked for if it means the same changes to this server. The
/// record is a row of the same database, written after what it names had become durable: a server that has the record
/// after a crash has all of the log before it, too, unchanged. That cannot be told of a record that came from elsewhere
/// (a dump, another timeline), nor where the server has lost a part of its log (`fsync = off`): new changes could be
/// written before our place, and would never be seen. There the slot's own place is taken: duplicates rather than loss.
pub(crate) fn resume(recorded: &Recorded, slot: Lsn, server: &Server) -> Reached {
    let last_commit = recorded.last_commit.map(CommitTime);
    let is_of_here = recorded.history.as_ref() == Some(&server.history);
    match recorded.confirmed {
        Some(confirmed) if is_of_here && confirmed <= server.flushed => {
            Reached { confirmed: confirmed.max(slot), last_commit, partial: recorded.partial }
        }
        Some(_) | None => Reached { confirmed: slot, last_commit, partial: None },
    }
}

pub(crate) fn check(slot: &str, found: &Found) -> Result<(), Error> {
    if found.plugin.as_deref() != Some("pgoutput") {
        return Err(Error::setup(format!(
            "replication slot `{slot}` is not one of pgoutput: name another with --slot"
        )));
    }
    if !found.is_of_this_database {
        return Err(Error::setup(format!(
            "replication slot `{slot}` belongs to another database of this server: name another with --slot"
        )));
    }
    Ok(())
}

/// The words of an alarm.
pub(crate) fn lost(slot: &str, outbox: &str, recorded: Option<&Recorded>, what: &str) -> Error {
    let known =
        recorded.and_then(|recorded| Some((recorded.confirmed?, recorded.confirmed_at.as_ref()?)));
    let since = known.map_or_else(String::new, |(lsn, at)| format!(" (it was at {lsn} at {at})"));
    Error::SlotLost {
        text: format!(
            "replication slot `{slot}` {what}. Rows of {outbox} that were committed since it was last confirmed\
             {since} may never have been published. Nothing is published now. `millrace relay resync` with the \
             same options makes a new slot and publishes the rows of the table again; then start the relay"
        ),
    }
}

impl Recorded {
    /// Whether the table is published in another way than it was: see [`UNPUBLISHED`].
    pub(crate) fn is_unpublished(&self, published: Option<&str>) -> bool {
        self.published.as_deref().is_some_and(|was| published != Some(was))
    }
}

/// What a table that is not published as it was means for the slot: PostgreSQL leaves out what was committed while it
/// was in no publication, and says nothing.
pub(crate) const UNPUBLISHED: &str = "can be read, but its publication has not had the table all the time: the \
    publication, the table or the table's place in it was dropped, or made anew";

/// Whether a slot or publication can have this name: it goes into commands as it is.
///
/// # Errors
/// In words.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return Err(Error::setup(format!(
            "the {what} cannot be called `{name}`: lower-case letters, digits and _ are allowed, up to 63"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(confirmed: Option<u64>) -> Recorded {
        Recorded {
            confirmed: confirmed.map(Lsn),
            outbox: "public.outbox".into(),
            confirmed_at: Some("noon".into()),
            last_commit: None,
            partial: Some(PARTIAL),
            history: Some(server().history),
            lost: None,
            published: None,
        }
    }

    const PARTIAL: Partial = Partial { commit: Lsn(14), below: Lsn(12) };

    fn server() -> Server {
        Server { history: History { system: "7001".into(), timeline: 1 }, flushed: Lsn(100) }
    }

    fn stream(confirmed: u64, partial: Option<Partial>) -> Plan {
        Plan::Stream(Reached { confirmed: Lsn(confirmed), last_commit: None, partial })
    }

    fn found(wal_status: &str, confirmed: u64) -> Found {
        Found {
            plugin: Some("pgoutput".into()),
            is_of_this_database: true,
            is_active: false,
            wal_status: Some(wal_status.into()),
            confirmed: Some(Lsn(confirmed)),
        }
    }

    fn judge(recorded: Option<Recorded>, found: Option<Found>) -> Result<Plan, Error> {
        plan("s", "public.outbox", recorded.as_ref(), found.as_ref(), &server())
    }

    #[test]
    fn a_slot_that_was_never_seen_is_made_and_the_table_is_read() {
        assert_eq!(judge(None, None), Ok(Plan::Begin { make_slot: true }));
        let begun = Some(recorded(None));
        assert_eq!(judge(begun.clone(), None), Ok(Plan::Begin { make_slot: true }));
        let made = Some(found("reserved", 5));
        assert_eq!(judge(begun, made.clone()), Ok(Plan::Begin { make_slot: false }));
        assert_eq!(judge(None, made), Ok(Plan::Begin { make_slot: false }));
    }

    #[test]
    fn a_slot_goes_on_from_what_is_recorded_even_if_the_server_remembers_an_older_place() {
        for at in [10, 7] {
            let judged = judge(Some(recorded(Some(10))), Some(found("extended", at)));
            assert_eq!(judged, Ok(stream(10, Some(PARTIAL))));
        }
    }

    #[test]
    fn a_record_that_this_server_may_not_have_lived_through_is_not_trusted() {
        let promoted = History { timeline: 2, ..server().history };
        let doubtful = [
            Recorded { history: Some(promoted), ..recorded(Some(10)) },
            Recorded { history: None, ..recorded(Some(10)) },
            // The server's log ends before it.
            recorded(Some(101)),
        ];
        for recorded in doubtful {
            let judged = judge(Some(recorded.clone()), Some(found("reserved", 7)));
            assert_eq!(judged, Ok(stream(7, None)), "{recorded:?}");
        }
    }

    #[test]
    fn a_record_of_another_server_says_nothing_about_the_slot_of_this_one() {
        let history = Some(History { system: "7002".into(), timeline: 1 });
        let elsewhere = Recorded { history, ..recorded(Some(10)) };
        let Err(Error::SlotLost { text }) = judge(Some(elsewhere), Some(found("reserved", 7)))
        else {
            panic!("nobody knows what was committed before it was made");
        };
        assert!(text.contains("7002") && text.contains("`millrace relay resync`"), "{text}");
    }

    #[test]
    fn a_used_slot_that_is_gone_invalid_or_ahead_is_refused_with_the_way_out() {
        let cases = [
            (None, "is gone"),
            (Some(found("lost", 10)), "max_slot_wal_keep_size"),
            (Some(found("reserved", 11)), "somebody advanced it"),
        ];
        for (found, words) in cases {
            let Err(Error::SlotLost { text }) = judge(Some(recorded(Some(10))), found) else {
                panic!("it is refused: {words}");
            };
            for part in [words, "`millrace relay resync`", "at noon", "public.outbox"] {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
        }
    }

    #[test]
    fn a_slot_whose_log_could_not_be_read_is_refused_until_another_was_made() {
        let lost = Recorded { lost: Some("no publication".into()), ..recorded(Some(10)) };
        let (there, other) = (found("reserved", 10), found("reserved", 11));
        assert_eq!(
            judge(Some(lost.clone()), Some(there.clone())),
            Err(Error::SlotLost { text: "no publication".into() })
        );
        assert!(!there.is_usable(Some(&lost)) && !other.is_usable(Some(&recorded(Some(10)))));
        assert!(there.is_usable(Some(&recorded(Some(10)))));
        // A resync was ended between the old slot and the new one.
        let begun = Recorded { confirmed: None, ..lost };
        assert_eq!(judge(Some(begun), None), Ok(Plan::Begin { make_slot: true }));
    }

    #[test]
    fn a_slot_of_something_else_is_never_taken() {
        let other = Found { plugin: Some("wal2json".into()), ..found("reserved", 5) };
        assert!(matches!(judge(None, Some(other)), Err(Error::Setup { .. })));
        let elsewhere = Found { is_of_this_database: false, ..found("reserved", 5) };
        assert!(matches!(judge(None, Some(elsewhere)), Err(Error::Setup { .. })));
        let used = Recorded { outbox: "public.other".into(), ..recorded(Some(1)) };
        assert!(matches!(judge(Some(used), None), Err(Error::Setup { .. })));
    }

    #[test]
    fn each_database_has_a_slot_of_its_own_whatever_it_is_called() {
        let long = "d".repeat(63);
        let longer = format!("{}e", "d".repeat(62));
        let names = ["shop", "Shop", "shop-1", "shop_1", "ä", "ö", &long, &longer, ""];
        let slots: std::collections::BTreeSet<String> =
            names.iter().map(|name| default_name(name)).collect();
        assert_eq!(slots.len(), names.len(), "{slots:?}");
        for slot in &slots {
            assert_eq!(check_name("slot", slot), Ok(()));
        }
        assert_eq!(default_name("shop"), "millrace_relay_shop");
    }

    #[test]
    fn sources_have_slots_of_their_own_whatever_they_and_their_databases_are_called() {
        let long = "d".repeat(63);
        let longest = "s".repeat(crate::limits::SOURCE_NAME_BYTES_MAX);
        let pairs = [("a_b", "c"), ("a", "b_c"), ("a.b", "c"), (&*long, &*longest), (&long, "s")];
        let mut slots: std::collections::BTreeSet<String> =
            pairs.iter().map(|(database, source)| source_name(database, source)).collect();
        slots.insert(default_name("a_b_c"));
        assert_eq!(slots.len(), pairs.len() + 1, "{slots:?}");
        for slot in &slots {
            assert_eq!(check_name("slot", slot), Ok(()));
        }
    }

    #[test]
    fn a_name_that_would_be_read_as_sql_is_refused() {
        assert!(check_name("slot", "millrace_1").is_ok());
        for name in ["", "a b", "A", "a;drop", "a'b", "ä"] {
            assert!(check_name("slot", name).is_err(), "{name}");
        }
    }
}
