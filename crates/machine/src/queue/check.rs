//! What must be true of a queue between calls. For tests: it looks at every message.

use super::Queue;
use super::level::Level;
use crate::command::Outcome;
use crate::ranges::Ranges;

impl Queue {
    /// On the leader each live message is in one place: nobody forgot it, nobody has it twice.
    pub(super) fn check(&self) {
        for level in self.levels() {
            let held = self.consumers.held_of(level.id().priority(), &level.reader.open);
            level.check(&held);
        }
    }
}

impl Level {
    fn check(&self, held: &Ranges) {
        let mut gathered = self.reader.gathered.clone();
        let mut places =
            vec![("ready", self.reader.ready.waiting().clone()), ("held", held.clone())];
        let mut leaving = Ranges::new();
        if let Some(attributes) = &self.reader.attributes {
            leaving = attributes.leaving.union().expect("a message is dead once");
            places.push(("leaving", leaving.clone()));
            places.push(("delayed", attributes.delayed.not_due()));
            let bytes = attributes.bytes_of(self.reader.ready.waiting());
            assert_eq!(attributes.ready_bytes, bytes, "bytes of what is ready in {:?}", self.id());
        }
        for outcome in (1..).map_while(Outcome::from_number) {
            // What is stored elsewhere is leaving until that is logged.
            if outcome != Outcome::DeadLettered {
                let mut ranges = gathered.of(outcome).intersect(&self.reader.open);
                ranges.remove_all(&leaving);
                places.push(("gathered", ranges));
            }
        }
        let mut all = Ranges::new();
        for (place, ranges) in places {
            let mut live = ranges.clone();
            live.remove_all(&self.reader.open);
            assert!(live.is_empty(), "{live:?} of {:?} are {place} and not live", self.id());
            let added = all.insert_all(&ranges);
            assert_eq!(added, ranges.len(), "{ranges:?} of {:?} are {place} and more", self.id());
        }
        let mut forgotten = self.reader.open.clone();
        forgotten.remove_all(&all);
        assert!(forgotten.is_empty(), "{forgotten:?} of {:?} are nowhere", self.id());
    }
}
