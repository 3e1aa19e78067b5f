//! That a message died: where, of what, and where such letters go.

use machine::Outcome;

pub(super) const REJECTED: &str = "rejected";

/// Where messages died, of what, and where such letters go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death<'a> {
    pub(crate) queue: &'a str,
    pub(crate) reason: Outcome,
    pub(crate) time_s: u64,
    /// Where the queue sends its dead letters.
    pub(crate) exchange: &'a str,
    /// The key they get, instead of the message's own.
    pub(crate) key: Option<&'a str>,
    /// How often operators have sent it on, this time included: none did this time if it is not said.
    pub(crate) retries: Option<i64>,
}

impl Death<'_> {
    pub(crate) fn reason_name(&self) -> &'static str {
        match self.reason {
            Outcome::Expired => "expired",
            Outcome::Overflowed => "maxlen",
            Outcome::Exhausted => "delivery_limit",
            // What is not dead is not sent on; a consumer's refusal is the reason that needs no other.
            Outcome::Done
            | Outcome::Rejected
            | Outcome::Purged
            | Outcome::Requeue
            | Outcome::Undelivered
            | Outcome::PassedOver
            | Outcome::DeadLettered
            | Outcome::Returned => REJECTED,
        }
    }
}
