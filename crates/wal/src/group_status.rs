//! Where each group stands, as the writer keeps it: what its next log file begins with.

use bytes::Bytes;

use crate::batch::Item;
use crate::record::LostState;
use crate::terms::Terms;

/// What every new file begins with, for each group, so that older files hold nothing but entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) hard_state: Option<Bytes>,
    pub(crate) truncated: (u64, u64),
    /// Index and term of the last entry; term 0: not known.
    pub(crate) last: (u64, u64),
    pub(crate) terms: Terms,
    /// The start found damage, and no checkpoint has covered it since.
    pub(crate) is_damaged: bool,
    pub(crate) lost_state: LostState,
}

impl Group {
    /// Keeps what the next file will begin with.
    pub(crate) fn note(&mut self, number: u32, item: &Item) {
        match item {
            // It was on its way when a snapshot came that covers it.
            Item::Entry { index, .. } if *index <= self.truncated.0 => {}
            Item::Entry { index, term, .. } => {
                assert!(
                    *index <= self.last.0 + 1,
                    "entries of group {number} follow each other: {index} came after {}",
                    self.last.0
                );
                self.terms.push(*index, *term);
                self.last = (*index, *term);
            }
            Item::HardState(state) => self.hard_state = Some(state.clone()),
            Item::TruncateFrom(index) => {
                let below = index.saturating_sub(1).max(self.truncated.0);
                if below < self.last.0 {
                    self.terms.truncate(below + 1);
                    let term = if below == self.truncated.0 { self.truncated.1 } else { 0 };
                    self.last = (below, self.terms.at(below).unwrap_or(term));
                }
            }
            Item::Reset(lost_state) => {
                let hard_state = self.hard_state.take();
                *self = Self {
                    hard_state,
                    lost_state: self.lost_state.or(*lost_state),
                    ..Self::default()
                };
            }
            Item::Rejoined => self.lost_state = LostState::default(),
        }
    }

    /// Takes over a checkpoint. False: it does not belong to this log, and nothing of the log is
    /// left: a snapshot from a peer.
    pub(crate) fn adopt(&mut self, index: u64, term: u64, is_new: bool) -> bool {
        let has_it = index <= self.last.0 && self.terms.at(index).is_none_or(|own| own == term);
        let was_below = index <= self.truncated.0;
        self.truncated = self.truncated.max((index, term));
        if is_new && index >= self.last.0 {
            self.is_damaged = false;
        }
        if was_below || has_it {
            self.terms.forget_to(self.truncated.0);
            return true;
        }
        // The log goes on above it.
        self.last = self.truncated;
        self.terms = Terms::default();
        false
    }
}
