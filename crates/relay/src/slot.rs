//! What to do about a replication slot at the start: PostgreSQL's word and our own memory of it, put together.
//!
//! A slot that was used and is gone means changes that nobody has seen. It is never made anew in silence.
//!
//! ```text
//! unknown --record--> begun --slot made, table read--> confirmed --slot gone--> refused --resync--> begun
//! ```
//! The record comes first and says "begun" until the table was read once: a relay that dies anywhere in between
//! begins again, and may publish rows twice but never leaves one out.

use crate::error::Error;
use crate::lsn::Lsn;

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
}

/// How to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Go on where the slot stands.
    Stream,
    /// Make the slot if it is not there, read the table, then go on.
    Begin { make_slot: bool },
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
) -> Result<Plan, Error> {
    if let Some(recorded) = recorded.filter(|recorded| recorded.outbox != outbox) {
        return Err(Error::setup(format!(
            "replication slot `{slot}` is used for {}, not for {outbox}: name another with --slot",
            recorded.outbox
        )));
    }
    if let Some(found) = found {
        check(slot, found)?;
    }
    let confirmed = recorded.and_then(|recorded| recorded.confirmed);
    match (confirmed, found) {
        (None, Some(found)) if found.is_lost() => {
            Err(lost(slot, outbox, recorded, "is invalidated before it was ever read"))
        }
        (None, found) => Ok(Plan::Begin { make_slot: found.is_none() }),
        (Some(confirmed), Some(found)) if !found.is_lost() => {
            if found.confirmed > Some(confirmed) {
                let text = format!(
                    "stands at {}, but this relay has confirmed only {confirmed}: somebody advanced it or made \
                     it anew",
                    found.confirmed.unwrap_or_default()
                );
                return Err(lost(slot, outbox, recorded, &text));
            }
            Ok(Plan::Stream)
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

fn check(slot: &str, found: &Found) -> Result<(), Error> {
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

/// Whether a slot or publication can have this name: it goes into commands as it is.
///
/// # Errors
/// In words.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
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
        }
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
        plan("s", "public.outbox", recorded.as_ref(), found.as_ref())
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
    fn a_slot_that_was_used_goes_on_even_if_the_server_remembers_an_older_place() {
        for at in [10, 7] {
            let judged = judge(Some(recorded(Some(10))), Some(found("extended", at)));
            assert_eq!(judged, Ok(Plan::Stream));
        }
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
    fn a_slot_of_something_else_is_never_taken() {
        let other = Found { plugin: Some("wal2json".into()), ..found("reserved", 5) };
        assert!(matches!(judge(None, Some(other)), Err(Error::Setup { .. })));
        let elsewhere = Found { is_of_this_database: false, ..found("reserved", 5) };
        assert!(matches!(judge(None, Some(elsewhere)), Err(Error::Setup { .. })));
        let used = Recorded { outbox: "public.other".into(), ..recorded(Some(1)) };
        assert!(matches!(judge(Some(used), None), Err(Error::Setup { .. })));
    }

    #[test]
    fn a_name_that_would_be_read_as_sql_is_refused() {
        assert!(check_name("slot", "millrace_1").is_ok());
        for name in ["", "a b", "A", "a;drop", "a'b", "ä"] {
            assert!(check_name("slot", name).is_err(), "{name}");
        }
    }
}
