//! Where to begin: what was written down, and what the server says of it.
//!
//! A place (file and offset) is of one server and one course of its log. It is believed where the server has the same ids
//! before it; elsewhere (a replica that was promoted, a log that was begun anew) the ids alone find it.

use super::gtid::State;
use super::place::Place;
use crate::error::Error;
use crate::progress::Reached;

/// What the table of places says of a relay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) outbox: String,
    /// The table was not read to its end yet.
    pub(crate) is_begun: bool,
    pub(crate) place: Place,
    pub(crate) gtid: String,
    /// Its `confirmed` is the place's.
    pub(crate) reached: Reached,
}

/// How to start.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Read the table, then the log from where it was then.
    Begin,
    /// Go on at the place.
    At { place: Place, state: State, reached: Reached },
    /// Go on behind these ids, wherever this server has them.
    Behind { state: State, last: Reached },
}

/// Puts the two together. `there`: the ids before the recorded place, as this server has them; none: it has no such place.
///
/// # Errors
/// The record is another outbox's, or leads nowhere.
pub(crate) fn plan(
    slot: &str,
    outbox: &str,
    recorded: Option<&Recorded>,
    there: Option<&str>,
) -> Result<Plan, Error> {
    let Some(recorded) = recorded else { return Ok(Plan::Begin) };
    if recorded.outbox != outbox {
        return Err(Error::setup(format!(
            "the place `{slot}` is of {}, not of {outbox}: name another with --slot",
            recorded.outbox
        )));
    }
    if recorded.is_begun {
        return Ok(Plan::Begin);
    }
    let unreadable = || lost(slot, outbox, &recorded.place, "its ids cannot be read");
    let state = State::parse(&recorded.gtid).ok_or_else(unreadable)?;
    let is_same = there.and_then(State::parse).is_some_and(|there| there == state);
    if is_same {
        return Ok(Plan::At { place: recorded.place.clone(), state, reached: recorded.reached });
    }
    if state == State::default() {
        return Err(lost(
            slot,
            outbox,
            &recorded.place,
            "this server has no such place, and no ids were written down",
        ));
    }
    let last = Reached { last_commit: recorded.reached.last_commit, ..Reached::default() };
    Ok(Plan::Behind { state, last })
}

/// The log cannot be read from where it was read to.
pub(crate) fn lost(slot: &str, outbox: &str, place: &Place, why: &str) -> Error {
    Error::SlotLost {
        text: format!(
            "the binlog cannot be read on for {outbox} from {} (slot `{slot}`): {why}. What was committed since may be \
             missing. `millrace relay resync --source wal` reads the table, and then the log from now on. Let the server \
             keep its binlog for longer than a relay may be down",
            place.words()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        Recorded {
            outbox: "shop.outbox".into(),
            is_begun: false,
            place: Place::of("bin.000002", 400).expect("it is a place"),
            gtid: "0-1-5".into(),
            reached: Reached::default(),
        }
    }

    fn words(recorded: Option<&Recorded>, there: Option<&str>) -> String {
        match plan("s", "shop.outbox", recorded, there) {
            Ok(Plan::Begin) => "begin".into(),
            Ok(Plan::At { place, .. }) => place.words(),
            Ok(Plan::Behind { state, .. }) => format!("behind {state}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_place_is_believed_where_the_server_has_the_same_ids_before_it() {
        assert_eq!(words(None, None), "begin");
        assert_eq!(words(Some(&recorded()), Some("0-1-5")), "bin.000002:400");
        assert_eq!(words(Some(&recorded()), Some("0-2-9")), "behind 0-1-5");
        assert_eq!(words(Some(&recorded()), None), "behind 0-1-5");
    }

    #[test]
    fn a_reading_that_was_interrupted_begins_again_and_a_place_that_leads_nowhere_is_lost() {
        let begun = Recorded { is_begun: true, ..recorded() };
        assert_eq!(words(Some(&begun), Some("0-1-5")), "begin");
        let nameless = Recorded { gtid: String::new(), ..recorded() };
        assert!(words(Some(&nameless), None).contains("relay resync"));
        assert_eq!(words(Some(&nameless), Some("")), "bin.000002:400");
        let other = Recorded { outbox: "shop.other".into(), ..recorded() };
        assert!(words(Some(&other), None).contains("--slot"));
    }
}
