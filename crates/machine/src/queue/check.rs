//! What must be true of a queue between calls. For tests: it looks at every message.

use super::Queue;
use super::level::Level;
use crate::command::Outcome;
use crate::ranges::Ranges;

impl Queue {
    /// On the leader each open message is in one place: nobody forgot it, nobody has it twice.
    pub(super) fn check(&self) {
        for level in self.levels() {
            let held = self.consumers.held_of(level.id().priority(), &level.kept().to_ranges());
            level.check(&held);
        }
    }
}

impl Level {
    fn check(&self, held: &Ranges) {
        let open = self.kept().to_ranges();
        let mut gathered = self.reader.gathered.clone();
        let mut places = vec![("ready", self.waiting().to_ranges()), ("held", held.clone())];
        let mut leaving = Ranges::new();
        if let Some(attributes) = &self.reader.attributes {
            leaving = attributes.leaving.union().expect("a message is dead once");
            places.push(("leaving", leaving.clone()));
            places.push(("delayed", attributes.delayed.not_due()));
            places.push(("withheld", attributes.withheld.undecided().clone()));
            let bytes = attributes.bytes_of(self.waiting());
            assert_eq!(attributes.ready_bytes, bytes, "bytes of what is ready in {:?}", self.id());
        }
        for outcome in (1..).map_while(Outcome::from_number) {
            // What is stored elsewhere is leaving until that is logged.
            if outcome != Outcome::DeadLettered {
                let mut ranges = gathered.of(outcome).intersect(&open);
                ranges.remove_all(&leaving);
                places.push(("gathered", ranges));
            }
        }
        places.push(("gathered as withheld", gathered.all_withheld().intersect(&open)));
        places.push(("settled unmarked", gathered.unmarked.intersect(&open)));
        let mut all = Ranges::new();
        for (place, ranges) in places {
            let mut settled = ranges.clone();
            settled.remove_all(&open);
            assert!(settled.is_empty(), "{settled:?} of {:?} are {place} and not open", self.id());
            let added = all.insert_all(&ranges);
            assert_eq!(added, ranges.len(), "{ranges:?} of {:?} are {place} and more", self.id());
        }
        if let Some(turns) = self.reader.sieve.as_ref().and_then(|sieve| sieve.turns()) {
            turns.check();
        }
        let mut forgotten = open;
        forgotten.remove_all(&all);
        assert!(forgotten.is_empty(), "{forgotten:?} of {:?} are nowhere", self.id());
    }
}
