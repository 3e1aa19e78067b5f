//! What a consumer holds, and how its outcomes are told to the server in few frames.
//!
//! Outcomes gather until [`Acks::tell`]: everything done without a gap is one `basic.ack` with
//! `multiple`, what lies behind a delivery that is still being worked on is acknowledged on its
//! own, so that one slow job does not hold back the credit of the others. Refusals go out first
//! come, first served, one by one.

use std::collections::VecDeque;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Handled: the server forgets the message.
    Done,
    /// Back to its place in the queue; the next delivery says `redelivered`.
    Requeue,
    /// Refused: the server dead-letters it, or drops it if the queue has no dead-letter exchange.
    DeadLetter,
}

/// One frame to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    Ack { tag: u64, multiple: bool },
    Reject { tag: u64, requeue: bool },
}

/// A tag that was never delivered, or was settled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTag(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Done,
    Told,
}

/// The unsettled deliveries of one channel, in the order of their tags.
///
/// Every call costs the same however many deliveries are held. A delivery that is held for long costs one byte
/// for each that comes after it, until it is settled.
#[derive(Clone, Debug)]
pub struct Acks {
    /// Tag of `states[0]`.
    first: u64,
    states: VecDeque<State>,
    refusals: Vec<Tell>,
    /// Done, and not told.
    done: Vec<u64>,
    held: usize,
}

impl Default for Acks {
    fn default() -> Self {
        let (states, refusals, done) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { first: 1, states, refusals, done, held: 0 }
    }
}

impl Acks {
    /// The server delivered `tag`. Tags count up by one; false says that this one does not.
    #[must_use]
    pub fn delivered(&mut self, tag: u64) -> bool {
        if tag != self.first + self.states.len() as u64 {
            return false;
        }
        self.states.push_back(State::Held);
        self.held += 1;
        true
    }

    /// The consumer is through with a delivery. Nothing is sent before [`Acks::tell`].
    ///
    /// # Errors
    /// `tag` was never delivered, or is settled.
    pub fn settle(&mut self, tag: u64, outcome: Outcome) -> Result<(), UnknownTag> {
        let index = tag.checked_sub(self.first).ok_or(UnknownTag(tag))?;
        let state = self.states.get_mut(index as usize).ok_or(UnknownTag(tag))?;
        if *state != State::Held {
            return Err(UnknownTag(tag));
        }
        *state = match outcome {
            Outcome::Done => {
                self.done.push(tag);
                State::Done
            }
            Outcome::Requeue | Outcome::DeadLetter => {
                let requeue = outcome == Outcome::Requeue;
                self.refusals.push(Tell::Reject { tag, requeue });
                State::Told
            }
        };
        assert!(self.held > 0, "a delivery that is held was counted");
        self.held -= 1;
        Ok(())
    }

    /// How many outcomes wait for [`Acks::tell`].
    pub fn waiting(&self) -> usize {
        self.done.len() + self.refusals.len()
    }

    /// How many deliveries are not settled by the consumer.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Adds the frames that tell the server every outcome so far.
    pub fn tell(&mut self, frames: &mut Vec<Tell>) {
        frames.append(&mut self.refusals);
        let (mut last, mut count) = (None, 0);
        while let Some(state) = self.states.front().copied().filter(|state| *state != State::Held) {
            if state == State::Done {
                (last, count) = (Some(self.first), count + 1);
            }
            self.states.pop_front();
            self.first += 1;
        }
        assert!(count <= self.done.len(), "what is acknowledged was said to be done");
        // The tag named must be one that is outstanding: RabbitMQ answers any other with 406.
        frames.extend(last.map(|tag| Tell::Ack { tag, multiple: count > 1 }));
        if self.done.len() > count {
            self.tell_behind_a_gap(frames);
        }
        self.done.clear();
        let oldest = self.states.front();
        assert!(
            oldest.is_none_or(|it| *it == State::Held),
            "an ack with `multiple` ends before it"
        );
    }

    fn tell_behind_a_gap(&mut self, frames: &mut Vec<Tell>) {
        self.done.retain(|tag| *tag >= self.first);
        self.done.sort_unstable();
        for tag in &self.done {
            self.states[(tag - self.first) as usize] = State::Told;
            frames.push(Tell::Ack { tag: *tag, multiple: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(count: u64) -> Acks {
        let mut acks = Acks::default();
        (1..=count).for_each(|tag| assert!(acks.delivered(tag)));
        acks
    }

    fn done(acks: &mut Acks, tags: impl IntoIterator<Item = u64>) {
        tags.into_iter().for_each(|tag| acks.settle(tag, Outcome::Done).expect("a held tag"));
    }

    fn told(acks: &mut Acks) -> Vec<Tell> {
        let mut frames = Vec::new();
        acks.tell(&mut frames);
        frames
    }

    #[test]
    fn a_run_without_a_gap_is_one_frame() {
        let mut acks = holding(10);
        done(&mut acks, 1..=7);
        assert_eq!(told(&mut acks), [Tell::Ack { tag: 7, multiple: true }]);
        assert_eq!(told(&mut acks), []);
        assert_eq!(acks.held(), 3);
    }

    #[test]
    fn a_single_delivery_is_acknowledged_without_multiple() {
        let mut acks = holding(1);
        done(&mut acks, [1]);
        assert_eq!(told(&mut acks), [Tell::Ack { tag: 1, multiple: false }]);
    }

    #[test]
    fn a_slow_delivery_does_not_hold_back_those_behind_it() {
        let mut acks = holding(5);
        done(&mut acks, [1, 3, 5]);
        let ack = |tag| Tell::Ack { tag, multiple: false };
        assert_eq!(told(&mut acks), [ack(1), ack(3), ack(5)]);
        done(&mut acks, [2]);
        assert_eq!(told(&mut acks), [ack(2)]);
        done(&mut acks, [4]);
        assert_eq!(told(&mut acks), [ack(4)]);
        assert_eq!(acks.held(), 0);
    }

    #[test]
    fn a_multiple_ack_names_a_tag_that_is_still_outstanding() {
        let mut acks = holding(3);
        done(&mut acks, [1, 2]);
        acks.settle(3, Outcome::DeadLetter).expect("held");
        let refusal = Tell::Reject { tag: 3, requeue: false };
        assert_eq!(told(&mut acks), [refusal, Tell::Ack { tag: 2, multiple: true }]);
    }

    #[test]
    fn a_requeue_in_the_middle_of_a_run_is_not_acknowledged_with_it() {
        let mut acks = holding(3);
        done(&mut acks, [1, 3]);
        acks.settle(2, Outcome::Requeue).expect("held");
        let refusal = Tell::Reject { tag: 2, requeue: true };
        assert_eq!(told(&mut acks), [refusal, Tell::Ack { tag: 3, multiple: true }]);
    }

    #[test]
    fn settling_twice_or_what_was_not_delivered_is_refused() {
        let mut acks = holding(2);
        done(&mut acks, [1]);
        assert_eq!(acks.settle(1, Outcome::Done), Err(UnknownTag(1)));
        assert_eq!(acks.settle(3, Outcome::Done), Err(UnknownTag(3)));
        assert_eq!(acks.settle(0, Outcome::Done), Err(UnknownTag(0)));
        told(&mut acks);
        assert_eq!(acks.settle(1, Outcome::Requeue), Err(UnknownTag(1)));
    }

    #[test]
    fn a_server_that_skips_a_tag_is_noticed() {
        let mut acks = holding(2);
        assert!(!acks.delivered(4));
        assert!(acks.delivered(3));
    }
}
