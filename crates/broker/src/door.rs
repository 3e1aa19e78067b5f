//! Who comes in when there is not room for all.
//!
//! A connection whose user is not known yet is a *stranger*. There may be so many of them, and half as many from one
//! address. Over the bound the oldest one that only waits for its client gives way to the newcomer: who is silent
//! keeps nobody out. Whoever has been there for less than a moment is not pushed out, nor is a client whose password
//! is being checked; the newcomer waits for a moment instead, and the others behind it in the kernel's queue. So an
//! avalanche of clients comes in as fast as they are known, and none of them is turned away.
//!
//! Two cannot rely on that patience: the address with the most strangers towards a newcomer from another one, and an
//! address that has had many wrong passwords.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits;
use crate::logins::Address;

/// A connection, by the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(u64);

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knock {
    ComeIn,
    /// This stranger is closed first.
    InsteadOf(Address, Number),
    /// Ask again when somebody is known or has left, or then at the latest.
    Wait(Duration),
    /// All places are taken by clients that are known.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Stranger {
    since: Duration,
    /// Its password is being checked: we let it wait, not it us.
    is_checked: bool,
}

/// The connections of a node.
#[derive(Debug)]
pub(crate) struct Door {
    open_max: usize,
    strangers_max: usize,
    open: usize,
    stranger_count: usize,
    strangers: BTreeMap<Address, BTreeMap<Number, Stranger>>,
    numbers: u64,
}

impl Door {
    /// `open_max`: connections at most, strangers or not.
    pub(crate) fn new(open_max: usize) -> Self {
        Self {
            open_max: open_max.max(1),
            strangers_max: limits::UNAUTHENTICATED_MAX.min(open_max / 2).max(2),
            open: 0,
            stranger_count: 0,
            strangers: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// How many strangers there are.
    pub(crate) fn stranger_count(&self) -> usize {
        self.stranger_count
    }

    /// Somebody comes. `is_slow`: its address has had many wrong passwords.
    pub(crate) fn knock(&self, now: Duration, address: Address, is_slow: bool) -> Knock {
        let own = self.strangers.get(&address).map_or(0, BTreeMap::len);
        if own >= self.strangers_max / 2 {
            return self.make_way(now, Some(address), is_slow);
        }
        if self.stranger_count < self.strangers_max && self.open < self.open_max {
            return Knock::ComeIn;
        }
        let crowds = self.strangers.iter().map(|(address, crowd)| (crowd.len(), *address));
        match crowds.max() {
            Some((count, crowded)) if count > own + 1 => self.make_way(now, Some(crowded), true),
            Some(_) => self.make_way(now, None, is_slow),
            None => Knock::Full,
        }
    }

    /// Finds who gives way, of one address or of all. `at_once`: however short it is there, whatever it does.
    fn make_way(&self, now: Duration, from: Option<Address>, at_once: bool) -> Knock {
        let crowds =
            self.strangers.iter().filter(|(address, _)| from.is_none_or(|at| at == **address));
        let strangers = crowds.flat_map(|(address, crowd)| {
            crowd.iter().map(|(number, stranger)| (*number, *address, *stranger))
        });
        let oldest = strangers
            .filter(|(_, _, stranger)| at_once || !stranger.is_checked)
            .min_by_key(|(number, _, stranger)| (stranger.is_checked, *number));
        let Some((number, address, stranger)) = oldest else {
            return Knock::Wait(limits::STRANGER_TIMEOUT);
        };
        let until = stranger.since + limits::STRANGER_TIMEOUT;
        if at_once || until <= now {
            return Knock::InsteadOf(address, number);
        }
        Knock::Wait(until - now)
    }

    /// A newcomer is in.
    pub(crate) fn enter(&mut self, now: Duration, address: Address) -> Number {
        self.numbers += 1;
        let number = Number(self.numbers);
        let stranger = Stranger { since: now, is_checked: false };
        self.strangers.entry(address).or_default().insert(number, stranger);
        self.open += 1;
        self.stranger_count += 1;
        number
    }

    /// A stranger's password is being checked, or is not any more.
    pub(crate) fn checked(&mut self, address: Address, number: Number, is_checked: bool) {
        let crowd = self.strangers.get_mut(&address);
        if let Some(stranger) = crowd.and_then(|crowd| crowd.get_mut(&number)) {
            stranger.is_checked = is_checked;
        }
    }

    /// A connection is a stranger no more: its user is known, or it ends.
    pub(crate) fn known(&mut self, address: Address, number: Number) {
        let Some(crowd) = self.strangers.get_mut(&address) else { return };
        if crowd.remove(&number).is_some() {
            self.stranger_count -= 1;
        }
        if crowd.is_empty() {
            self.strangers.remove(&address);
        }
    }

    /// A connection has ended.
    pub(crate) fn leave(&mut self, address: Address, number: Number) {
        self.known(address, number);
        assert!(self.open > 0, "nobody leaves who has not come in");
        self.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const LATER: Duration = Duration::from_secs(101);

    fn address(last: u8) -> Address {
        Address::of(IpAddr::from([10, 0, 0, last]))
    }

    fn full(from: &[u8]) -> (Door, Vec<Number>) {
        let mut door = Door::new(100);
        let each = 50 / from.len();
        let enter = |(last, _)| door.enter(NOW, address(last));
        let numbers = from.iter().flat_map(|last| (0..each).map(|at| (*last, at))).map(enter);
        let numbers = numbers.collect();
        (door, numbers)
    }

    #[test]
    fn the_oldest_silent_stranger_of_a_crowded_address_gives_way() {
        let mut door = Door::new(100);
        let numbers: Vec<_> = (0..25).map(|_| door.enter(NOW, address(1))).collect();
        assert_eq!(door.knock(NOW, address(2), false), Knock::ComeIn);
        assert_eq!(door.knock(LATER, address(1), false), Knock::InsteadOf(address(1), numbers[0]));
        door.checked(address(1), numbers[0], true);
        assert_eq!(door.knock(LATER, address(1), false), Knock::InsteadOf(address(1), numbers[1]));
        door.leave(address(1), numbers[1]);
        assert_eq!(door.knock(LATER, address(1), false), Knock::ComeIn);
    }

    #[test]
    fn an_avalanche_waits_until_those_before_it_are_known() {
        let mut door = Door::new(100);
        let numbers: Vec<_> = (0..25).map(|_| door.enter(NOW, address(1))).collect();
        assert_eq!(door.knock(NOW, address(1), false), Knock::Wait(limits::STRANGER_TIMEOUT));
        for number in &numbers {
            door.checked(address(1), *number, true);
        }
        assert_eq!(door.knock(LATER, address(1), false), Knock::Wait(limits::STRANGER_TIMEOUT));
        door.known(address(1), numbers[3]);
        assert_eq!(door.knock(LATER, address(1), false), Knock::ComeIn);
    }

    #[test]
    fn the_most_crowded_address_gives_way_to_another_at_once() {
        let (door, numbers) = full(&[1, 2]);
        assert_eq!(door.stranger_count(), 50);
        assert_eq!(door.knock(NOW, address(3), false), Knock::InsteadOf(address(2), numbers[25]));
    }

    #[test]
    fn where_no_address_is_crowded_the_oldest_of_all_gives_way() {
        let mut door = Door::new(100);
        let numbers: Vec<_> = (0..50).rev().map(|last| door.enter(NOW, address(last))).collect();
        assert_eq!(
            door.knock(LATER, address(60), false),
            Knock::InsteadOf(address(49), numbers[0])
        );
    }

    #[test]
    fn an_address_with_many_wrong_passwords_gives_way_though_its_passwords_are_being_checked() {
        let mut door = Door::new(100);
        let numbers: Vec<_> = (0..25).map(|_| door.enter(NOW, address(1))).collect();
        for number in &numbers {
            door.checked(address(1), *number, true);
        }
        assert_eq!(door.knock(NOW, address(1), true), Knock::InsteadOf(address(1), numbers[0]));
    }

    #[test]
    fn strangers_give_way_when_all_places_are_taken_and_known_clients_never_do() {
        let mut door = Door::new(10);
        for last in 0..9 {
            let number = door.enter(NOW, address(last));
            door.known(address(last), number);
        }
        let stranger = door.enter(NOW, address(20));
        assert_eq!(door.open(), 10);
        assert_eq!(door.knock(LATER, address(21), false), Knock::InsteadOf(address(20), stranger));
        door.known(address(20), stranger);
        assert_eq!(door.knock(LATER, address(21), false), Knock::Full);
        door.leave(address(20), stranger);
        assert_eq!(door.knock(LATER, address(21), false), Knock::ComeIn);
    }

    #[test]
    fn strangers_are_bounded_however_many_addresses_there_are() {
        let mut door = Door::new(limits::CONNECTIONS_MAX);
        let mut count = 0;
        for number in 0..u32::try_from(limits::UNAUTHENTICATED_MAX * 2).unwrap() {
            let address = Address::of(IpAddr::from((10 << 24 | number).to_be_bytes()));
            if door.knock(NOW, address, false) == Knock::ComeIn {
                door.enter(NOW, address);
                count += 1;
            }
        }
        assert_eq!(count, limits::UNAUTHENTICATED_MAX);
    }
}
