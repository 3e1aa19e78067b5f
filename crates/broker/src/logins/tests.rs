use super::*;

const NOW: Duration = Duration::from_secs(100);

fn address(last: u8) -> Address {
    Address::of(IpAddr::from([10, 0, 0, last]))
}

fn fingerprint(number: u32) -> Fingerprint {
    let mut fingerprint = [0; 32];
    fingerprint[..4].copy_from_slice(&number.to_be_bytes());
    fingerprint
}

/// The test's own numbers are the passwords, so that it sees what is checked.
fn ask(logins: &mut Logins, now: Duration, number: u32, from: u8, user: &str) -> Asked {
    let line = Line { address: address(from), user: Some(user.to_owned()) };
    let check = Check { password: number.to_be_bytes().to_vec(), stored: Some("hash".to_owned()) };
    logins.ask(now, fingerprint(number), line, check)
}

fn next(logins: &mut Logins, now: Duration) -> Option<u32> {
    match logins.next(now) {
        Next::Check(_, check) => Some(u32::from_be_bytes(check.password.try_into().unwrap())),
        Next::At(_) | Next::Nothing => None,
    }
}

fn waiter(asked: Asked) -> Waiter {
    match asked {
        Asked::Wait(waiter) => waiter,
        Asked::Known(verdict) => panic!("it is known to be {verdict}"),
    }
}

#[test]
fn the_same_credentials_are_checked_once_however_many_wait() {
    let mut logins = Logins::default();
    let waiters: Vec<_> = (0..3000).map(|_| waiter(ask(&mut logins, NOW, 7, 1, "ann"))).collect();
    assert_eq!(next(&mut logins, NOW), Some(7));
    let late = waiter(ask(&mut logins, NOW, 7, 1, "ann"));
    assert_eq!(logins.next(NOW), Next::Nothing);
    let told = logins.checked(NOW, fingerprint(7), true);
    assert_eq!(told, [waiters, vec![late]].concat());
    assert_eq!(ask(&mut logins, NOW, 7, 1, "ann"), Asked::Known(true));
}

#[test]
fn what_was_wrong_is_known_for_some_seconds() {
    let mut logins = Logins::default();
    waiter(ask(&mut logins, NOW, 7, 1, "ann"));
    assert_eq!(next(&mut logins, NOW), Some(7));
    logins.checked(NOW, fingerprint(7), false);
    assert_eq!(ask(&mut logins, NOW, 7, 2, "ann"), Asked::Known(false));
    waiter(ask(&mut logins, NOW + limits::WRONG_LOGIN_KNOWN, 7, 2, "ann"));
}

#[test]
fn nobody_is_known_to_be_right_without_a_stored_hash() {
    let mut logins = Logins::default();
    waiter(ask(&mut logins, NOW, 7, 1, "ann"));
    next(&mut logins, NOW);
    logins.checked(NOW, fingerprint(7), true);
    let line = Line { address: address(1), user: None };
    let check = Check { password: Vec::new(), stored: None };
    waiter(logins.ask(NOW, fingerprint(7), line, check));
}

#[test]
fn one_address_with_many_wrong_passwords_does_not_keep_another_waiting() {
    let mut logins = Logins::default();
    for number in 0..500 {
        ask(&mut logins, NOW, number, 1, "ann");
    }
    assert_eq!(next(&mut logins, NOW), Some(0));
    ask(&mut logins, NOW, 1000, 2, "ann");
    ask(&mut logins, NOW, 1001, 1, "bob");
    let soon: Vec<_> = (0..3).filter_map(|_| next(&mut logins, NOW)).collect();
    assert!(soon.contains(&1000) && soon.contains(&1001), "{soon:?}");
}

#[test]
fn an_address_with_too_many_wrong_ones_is_slow_and_the_others_are_not() {
    let mut logins = Logins::default();
    let mut number = 0;
    while !logins.is_slow(address(1), NOW) {
        ask(&mut logins, NOW, number, 1, "ann");
        assert_eq!(next(&mut logins, NOW), Some(number));
        logins.checked(NOW, fingerprint(number), false);
        number += 1;
    }
    assert_eq!(number, limits::WRONG_LOGINS_AT_ONCE);
    ask(&mut logins, NOW, 5000, 1, "ann");
    let then = NOW + Duration::from_secs(1) / limits::WRONG_LOGINS_PER_SECOND;
    assert_eq!(logins.next(NOW), Next::At(then));
    ask(&mut logins, NOW, 6000, 2, "ann");
    assert_eq!(next(&mut logins, NOW), Some(6000));
    assert_eq!(next(&mut logins, NOW), None);
    assert_eq!(next(&mut logins, then), Some(5000));
}

#[test]
fn what_nobody_waits_for_any_more_is_not_checked() {
    let mut logins = Logins::default();
    let one = waiter(ask(&mut logins, NOW, 1, 1, "ann"));
    let other = waiter(ask(&mut logins, NOW, 1, 2, "ann"));
    logins.leave(&fingerprint(1), one);
    assert!(!logins.pending.is_empty());
    logins.leave(&fingerprint(1), other);
    assert!(logins.pending.is_empty() && logins.lines.is_empty());
    assert_eq!(logins.next(NOW), Next::Nothing);

    // One that runs goes on, and what it finds is remembered.
    let one = waiter(ask(&mut logins, NOW, 2, 1, "ann"));
    assert_eq!(next(&mut logins, NOW), Some(2));
    logins.leave(&fingerprint(2), one);
    assert_eq!(logins.checked(NOW, fingerprint(2), true), []);
    assert_eq!(ask(&mut logins, NOW, 2, 1, "ann"), Asked::Known(true));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut logins = Logins::default();
    let count = u32::try_from(limits::VERIFIED_CREDENTIALS_MAX * 2).unwrap();
    for number in 0..count {
        logins.right.insert(fingerprint(number));
        logins.wrong.insert(NOW, fingerprint(number));
        assert!(logins.right.contains(&fingerprint(0)), "what is used stays");
    }
    let right = logins.right.fresh.len() + logins.right.old.len();
    assert!(right <= limits::VERIFIED_CREDENTIALS_MAX, "{right}");
    assert_eq!(logins.wrong.known.len(), limits::WRONG_CREDENTIALS_MAX);
    for last in 0..limits::LOGIN_ADDRESSES_MAX * 2 {
        let [.., one, two] = u32::try_from(last).unwrap().to_be_bytes();
        logins.count_wrong(NOW, Address::of(IpAddr::from([10, 0, one, two])));
        assert!(logins.paces.len() <= limits::LOGIN_ADDRESSES_MAX);
    }
}

#[test]
fn an_address_of_ipv6_is_its_network_and_a_mapped_one_is_ipv4() {
    let of = |text: &str| Address::of(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:10.0.0.1"), address(1));
}
