//! One queue: messages that are visible, and messages that will be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A queue in memory.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) visibility: Duration,
    last: u64,
    messages: BTreeMap<u64, Message>,
    /// In the order that they are received in.
    visible: VecDeque<u64>,
    /// By the time that they become visible.
    hidden: BTreeSet<(u64, u64)>,
}

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) body: String,
    pub(super) priority: u32,
    pub(super) enqueued_ms: u64,
    pub(super) first_dequeue_ms: u64,
    pub(super) dequeues: u32,
    pub(super) visible_ms: u64,
    /// Counts up with every handle: only the last one is valid.
    serial: u64,
}

impl Message {
    pub(super) fn id(&self) -> String {
        format!("5F290C926D472878-2-14D9529A8FA-{:09}", self.number)
    }

    pub(super) fn handle(&self) -> String {
        format!("{}-{}-{}", self.number, self.serial, self.visible_ms)
    }
}

/// Why a handle is refused, as the error's code.
pub(super) type Refused = &'static str;

impl Queue {
    pub(super) fn new(visibility: Duration) -> Self {
        Self {
            visibility,
            last: 0,
            messages: BTreeMap::new(),
            visible: VecDeque::new(),
            hidden: BTreeSet::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn bodies(&self) -> Vec<String> {
        self.messages.values().map(|message| message.body.clone()).collect()
    }

    pub(super) fn send(
        &mut self,
        body: String,
        delay_ms: u64,
        priority: u32,
        now: u64,
    ) -> &Message {
        self.last += 1;
        let number = self.last;
        let message = Message {
            number,
            body,
            priority,
            enqueued_ms: now,
            first_dequeue_ms: 0,
            dequeues: 0,
            visible_ms: now + delay_ms,
            serial: 0,
        };
        if delay_ms > 0 {
            self.hidden.insert((message.visible_ms, number));
        } else {
            self.visible.push_back(number);
        }
        self.messages.entry(number).or_insert(message)
    }

    /// Takes up to so many messages out of sight.
    pub(super) fn receive(&mut self, count: usize, now: u64) -> Vec<Message> {
        while let Some(&(at, number)) = self.hidden.first()
            && at <= now
        {
            self.hidden.pop_first();
            self.visible.push_back(number);
        }
        let mut received = Vec::new();
        while received.len() < count
            && let Some(number) = self.visible.pop_front()
        {
            let Some(message) = self.messages.get_mut(&number) else { continue };
            message.dequeues += 1;
            message.serial += 1;
            if message.first_dequeue_ms == 0 {
                message.first_dequeue_ms = now;
            }
            message.visible_ms = now + self.visibility.as_millis() as u64;
            self.hidden.insert((message.visible_ms, number));
            received.push(message.clone());
        }
        received
    }

    /// The message of a handle that is still valid.
    fn of_handle(&self, handle: &str, now: u64) -> Result<u64, Refused> {
        let mut parts = handle.split('-').map(str::parse::<u64>);
        let (Some(Ok(number)), Some(Ok(serial)), Some(Ok(_)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("ReceiptHandleError");
        };
        match self.messages.get(&number) {
            Some(message) if message.serial == serial && message.visible_ms > now => Ok(number),
            Some(_) | None => Err("MessageNotExist"),
        }
    }

    /// Makes a message visible, as if it had come out so often.
    pub(super) fn deliver(&mut self, id: &str, times: u32, now: u64) {
        for message in self.messages.values_mut().filter(|message| message.id() == id) {
            self.hidden.remove(&(message.visible_ms, message.number));
            message.dequeues = times;
            message.serial += 1;
            message.visible_ms = now;
            self.hidden.insert((now, message.number));
        }
    }

    pub(super) fn delete(&mut self, handle: &str, now: u64) -> Result<(), Refused> {
        let number = self.of_handle(handle, now)?;
        let message = self.messages.remove(&number).expect("its handle is valid");
        self.hidden.remove(&(message.visible_ms, number));
        Ok(())
    }

    /// Makes a message visible after this long, and gives it a new handle.
    pub(super) fn show(
        &mut self,
        handle: &str,
        after_ms: u64,
        now: u64,
    ) -> Result<&Message, Refused> {
        let number = self.of_handle(handle, now)?;
        let message = self.messages.get_mut(&number).expect("its handle is valid");
        self.hidden.remove(&(message.visible_ms, number));
        message.serial += 1;
        message.visible_ms = now + after_ms;
        self.hidden.insert((message.visible_ms, number));
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_valid_until_its_message_is_visible_or_has_a_newer_one() {
        let mut queue = Queue::new(Duration::from_secs(10));
        queue.send("a".into(), 0, 8, 0);
        let first = queue.receive(16, 1000).remove(0).handle();
        assert!(queue.receive(16, 2000).is_empty());
        let second = queue.show(&first, 5000, 2000).expect("it is valid").handle();
        assert_eq!(queue.delete(&first, 2000), Err("MessageNotExist"));
        assert_eq!(queue.delete(&second, 7000), Err("MessageNotExist"), "its time is over");
        let again = queue.receive(16, 7000).remove(0);
        assert_eq!(again.dequeues, 2);
        assert_eq!(queue.delete(&again.handle(), 8000), Ok(()));
        assert_eq!((queue.count(), queue.delete("x", 0)), (0, Err("ReceiptHandleError")));
    }

    #[test]
    fn a_delayed_message_comes_when_its_delay_is_over() {
        let mut queue = Queue::new(Duration::from_secs(10));
        queue.send("a".into(), 500, 8, 0);
        assert!(queue.receive(1, 499).is_empty());
        assert_eq!(queue.receive(1, 500).len(), 1);
    }
}
