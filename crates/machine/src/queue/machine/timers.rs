//! When queues are looked at because time passes: those alone that have something to wait for.

use super::QueueMachine;
use crate::ids::QueueId;
use crate::queue::Effect;

impl QueueMachine {
    /// Tells the leader's time, ms since 1970. It never goes back.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// When `tick` has something to do, ms since 1970; None: nothing waits for a time.
    pub fn deadline(&self) -> Option<u64> {
        self.timers.first().map(|(due_ms, _)| *due_ms)
    }

    /// Does what is due: messages expire or become ready, queues that nobody uses are over. What that
    /// settles is gathered for the log. Much at once takes several calls: `deadline` says so.
    pub fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.set_now(now_ms);
        let now_ms = self.now_ms;
        let due = self.timers.range(..=(now_ms, QueueId(u64::MAX)));
        let due: Vec<QueueId> = due.map(|(_, id)| *id).collect();
        for id in due {
            if let Some(place) = self.place(id) {
                self.look_if_held(place);
            }
            let Some(queue) = self.queue_mut(id) else { continue };
            queue.tick(now_ms, effects);
            self.look_after(id);
        }
    }

    /// Somebody asked for the queue: it is in use.
    pub fn touch(&mut self, queue: QueueId) {
        let now_ms = self.now_ms;
        if let Some(found) = self.queue_mut(queue) {
            found.touch(now_ms);
            self.look_after(queue);
        }
    }

    /// Dead messages that were handed out are handed out again: who had them is gone.
    pub fn leave_again(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_dispatching {
            return;
        }
        for queue in self.slots.iter_mut().flatten() {
            for level in queue.levels_mut() {
                if let Some(attributes) = &mut level.reader.attributes {
                    attributes.leaving.lead();
                    level.reader.hand_out(effects);
                }
            }
        }
    }

    /// What must be true between calls, on the leader. For tests: it looks at everything.
    pub fn check(&self) {
        if self.is_leading {
            self.slots.iter().flatten().for_each(|queue| queue.check());
        }
    }

    /// After something was done to a queue: what it has for the log, and what it waits for.
    pub(super) fn look_after(&mut self, id: QueueId) {
        let (is_leading, is_dispatching, now_ms) =
            (self.is_leading, self.is_dispatching, self.now_ms);
        let Some(queue) = self.queue_mut(id) else { return };
        let id = queue.id;
        if is_leading {
            queue.look_ahead(now_ms);
        }
        let (has_settles, is_held_up) = (queue.has_settles(), queue.is_held_up());
        let due_ms = queue.next_due().filter(|_| is_dispatching);
        let is_set = due_ms == queue.timer;
        let wants_sifting = is_dispatching && queue.wants_sifting();
        if has_settles {
            self.unlogged.insert(id);
        }
        if wants_sifting {
            self.unsifted.push(id);
        }
        self.is_awaited |= is_held_up;
        if !is_set {
            self.set_timer(id, due_ms);
        }
    }

    pub(super) fn set_timer(&mut self, id: QueueId, due_ms: Option<u64>) {
        let Some(queue) = self.queue_mut(id) else { return };
        let before = std::mem::replace(&mut queue.timer, due_ms);
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        if let Some(due_ms) = due_ms {
            self.timers.insert((due_ms, id));
        }
    }
}
