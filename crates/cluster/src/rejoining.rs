//! What a replica must not do after it has lost entries or a vote that it had acknowledged.
//!
//! Its files were damaged and quarantined, or are older than what the leader knows of them. Entries
//! that it had acknowledged may be missing, so until it has them again it helps nobody to leadership.
//!
//! It asks the leader to forget what it knows of the log, at every heartbeat until the leader answers.
//! From the answer on the leader counts nothing that is missing. The replica has everything again once
//! it applied what was committed when the leader sent the next entries, and an entry of that leader's
//! own term: before that one come all that were committed in earlier terms.
//!
//! If its vote is lost too, it moreover waits until it heard from all other voters. Whoever it may
//! have voted for has voted for itself, and so is in that term or a later one: in terms above all of
//! these it has never voted.
//!
//! ```text
//! log:   asks ──the leader answers──> answered ──its next entries──> in contact ──they are applied──> log is whole
//!         ^                              │                               │
//!         └── another leader, or a leader counts on entries missing here ┘
//! vote:  listens ──heard all other voters──> has a bar ──its own term is above the bar──> may vote
//! ```
//!
//! The replica takes part in elections as before once both lines are at their end.

use std::collections::BTreeMap;

use raft::eraftpb::{Message, MessageType};
use wal::LostState;

/// In `request_snapshot` of a follower's answer: forget what you know of my log. In that of a heartbeat: it is
/// forgotten.
const NOTHING_LEFT: u64 = u64::MAX;

/// A replica on its way back.
#[derive(Clone, Debug)]
pub(crate) struct Rejoining {
    lost_state: LostState,
    /// Term of the leader that answered last: it counts nothing that is missing. `None`: it is asked.
    answered: Option<u64>,
    /// Term of the leader that began anew, and what was committed then.
    contact: Option<(u64, u64)>,
    /// What was applied last: index and term.
    applied: (u64, u64),
    /// A term of each of the others.
    heard: BTreeMap<u64, u64>,
    /// The highest of them, once all were heard: it has not voted in any term above.
    bar: Option<u64>,
}

/// What the replica knows of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaStatus<'a> {
    pub(crate) node: u64,
    pub(crate) term: u64,
    pub(crate) last_index: u64,
    pub(crate) voters: &'a [u64],
}

impl Rejoining {
    /// `None`: nothing was forgotten.
    pub(crate) fn new(lost_state: LostState) -> Option<Self> {
        lost_state.any().then(|| Self {
            lost_state,
            answered: None,
            contact: None,
            applied: (0, 0),
            heard: BTreeMap::new(),
            bar: None,
        })
    }

    /// The leader counts on entries that are missing here, whatever it answered before.
    pub(crate) fn ask_again(&mut self) {
        (self.lost_state.log, self.answered, self.contact) = (true, None, None);
    }

    /// Sees a message before `raft` does. False: `raft` must not get it.
    pub(crate) fn see(&mut self, message: &Message, own: ReplicaStatus<'_>) -> bool {
        use MessageType::{
            MsgAppend, MsgHeartbeat, MsgRequestPreVote, MsgRequestVote, MsgTimeoutNow,
        };
        let kind = message.get_msg_type();
        // A pre-candidate names a term that it is not in.
        if kind != MsgRequestPreVote && message.term > 0 && self.bar.is_none() {
            let heard = self.heard.entry(message.from).or_default();
            *heard = message.term.max(*heard);
            let others = own.voters.iter().filter(|voter| **voter != own.node);
            let terms = others.map(|voter| self.heard.get(voter).copied());
            self.bar = terms.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max());
        }
        match kind {
            MsgHeartbeat if is_answer(message) && message.term >= own.term => {
                self.answered = Some(message.term);
                true
            }
            MsgAppend if message.index <= own.last_index && self.answered == Some(message.term) => {
                if self.contact.is_none_or(|(term, _)| term < message.term) {
                    self.contact = Some((message.term, message.commit));
                }
                true
            }
            MsgRequestPreVote => !self.lost_state.log,
            MsgRequestVote => {
                !self.lost_state.log
                    && (!self.lost_state.vote || self.bar.is_some_and(|bar| message.term > bar))
            }
            MsgTimeoutNow => false,
            _ => true,
        }
    }

    /// What the leader is to be asked when it was heard in `message`, if anything.
    pub(crate) fn question(&self, message: &Message, own: ReplicaStatus<'_>) -> Option<Message> {
        let is_heard = message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= own.term
            && self.answered != Some(message.term);
        is_heard.then(|| {
            let mut question = Message::default();
            question.set_msg_type(MessageType::MsgAppendResponse);
            (question.from, question.to) = (own.node, message.from);
            (question.term, question.reject) = (message.term, true);
            question.request_snapshot = NOTHING_LEFT;
            // What a snapshot has brought before a restart is not asked for again.
            question.reject_hint = own.last_index;
            question
        })
    }

    /// The entry `index` of `term` is applied.
    pub(crate) fn applied(&mut self, index: u64, term: u64) {
        self.applied = (index, term);
    }

    /// Whether everything that was forgotten is made up for.
    pub(crate) fn is_over(&mut self, own: ReplicaStatus<'_>) -> bool {
        let (index, term) = self.applied;
        if self.contact.is_some_and(|(at, committed)| term >= at && index >= committed) {
            self.lost_state.log = false;
        }
        if self.bar.is_some_and(|bar| own.term > bar) {
            self.lost_state.vote = false;
        }
        !self.lost_state.any()
    }
}

/// A leader's answer to `question`: it has forgotten what it knew of the log.
pub(crate) fn answer(question: &Message) -> Message {
    let mut answer = Message::default();
    answer.set_msg_type(MessageType::MsgHeartbeat);
    (answer.from, answer.to, answer.term) = (question.to, question.from, question.term);
    answer.request_snapshot = NOTHING_LEFT;
    answer
}

fn is_answer(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgHeartbeat && message.request_snapshot == NOTHING_LEFT
}

/// Whether `message` asks its leader to forget what it knows of the sender's log.
pub(crate) fn is_question(message: &Message) -> bool {
    message.get_msg_type() == MessageType::MsgAppendResponse
        && message.reject
        && message.request_snapshot == NOTHING_LEFT
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTERS: [u64; 3] = [1, 2, 3];
    const ALL: LostState = LostState { log: true, vote: true };

    fn own(term: u64) -> ReplicaStatus<'static> {
        ReplicaStatus { node: 2, term, last_index: 10, voters: &VOTERS }
    }

    fn message(kind: MessageType, from: u64, term: u64) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (from, 2, term);
        message
    }

    fn append(term: u64, index: u64, commit: u64) -> Message {
        let mut append = message(MessageType::MsgAppend, 1, term);
        (append.index, append.commit) = (index, commit);
        append
    }

    fn applied(rejoining: &mut Rejoining, index: u64, term: u64, own: ReplicaStatus<'_>) -> bool {
        rejoining.applied(index, term);
        rejoining.is_over(own)
    }

    #[test]
    fn it_does_not_vote_before_it_has_what_was_committed_when_it_came_back() {
        let mut rejoining = Rejoining::new(LostState { log: true, vote: false }).unwrap();
        let vote = message(MessageType::MsgRequestVote, 3, 9);
        assert!(!rejoining.see(&vote, own(5)));
        assert!(rejoining.see(&append(5, 10, 20), own(5)), "of before the answer: it says nothing");
        let heartbeat = message(MessageType::MsgHeartbeat, 1, 5);
        let question = rejoining.question(&heartbeat, own(5)).expect("it asks");
        assert!(rejoining.see(&answer(&question), own(5)));
        // An append that does not fit yet says nothing.
        assert!(rejoining.see(&append(5, 40, 40), own(5)));
        assert!(rejoining.see(&append(5, 10, 30), own(5)));
        assert!(rejoining.question(&heartbeat, own(5)).is_none());
        assert!(rejoining.see(&append(5, 10, 90), own(5)), "later commits do not matter");
        assert!(!applied(&mut rejoining, 29, 5, own(5)));
        assert!(
            !applied(&mut rejoining, 30, 4, own(5)),
            "an entry of an earlier term is not enough"
        );
        assert!(!rejoining.see(&vote, own(5)));
        assert!(applied(&mut rejoining, 31, 5, own(5)));
    }

    #[test]
    fn a_leader_that_counts_on_what_is_missing_is_asked_again() {
        let mut rejoining = Rejoining::new(LostState { log: true, vote: false }).unwrap();
        let heartbeat = message(MessageType::MsgHeartbeat, 1, 5);
        let question = rejoining.question(&heartbeat, own(5)).unwrap();
        rejoining.see(&answer(&question), own(5));
        rejoining.see(&append(5, 10, 30), own(5));
        rejoining.ask_again();
        assert!(rejoining.question(&heartbeat, own(5)).is_some());
        assert!(!applied(&mut rejoining, 31, 5, own(5)), "more may have been committed meanwhile");
        // Another leader has to answer for itself.
        rejoining.see(&answer(&question), own(5));
        assert!(rejoining.question(&message(MessageType::MsgHeartbeat, 3, 6), own(6)).is_some());
    }

    #[test]
    fn a_lost_vote_is_not_given_again_in_any_term_that_somebody_is_in() {
        let mut rejoining = Rejoining::new(ALL).unwrap();
        let heartbeat = message(MessageType::MsgHeartbeat, 1, 5);
        let question = rejoining.question(&heartbeat, own(5)).unwrap();
        rejoining.see(&answer(&question), own(5));
        rejoining.see(&append(5, 10, 10), own(5));
        assert!(!applied(&mut rejoining, 10, 5, own(5)));
        let vote = |term| message(MessageType::MsgRequestVote, 1, term);
        assert!(!rejoining.see(&vote(6), own(5)), "node 3 may be in any term");
        rejoining.see(&message(MessageType::MsgHeartbeatResponse, 3, 7), own(5));
        assert!(!rejoining.see(&vote(7), own(5)));
        assert!(!rejoining.see(&message(MessageType::MsgTimeoutNow, 1, 7), own(7)));
        assert!(!applied(&mut rejoining, 11, 7, own(7)), "it may have voted in term 7");
        assert!(rejoining.see(&vote(8), own(7)));
        assert!(applied(&mut rejoining, 12, 8, own(8)));
    }

    #[test]
    fn a_question_says_what_is_left_of_the_log() {
        let rejoining = Rejoining::new(ALL).unwrap();
        let question = rejoining.question(&message(MessageType::MsgHeartbeat, 1, 5), own(5));
        assert_eq!(question.unwrap().reject_hint, 10);
    }

    #[test]
    fn questions_are_told_from_other_answers() {
        let rejoining = Rejoining::new(ALL).unwrap();
        let question = rejoining.question(&message(MessageType::MsgHeartbeat, 1, 5), own(5));
        assert!(is_question(&question.unwrap()));
        assert!(!is_question(&message(MessageType::MsgAppendResponse, 1, 5)));
    }
}
