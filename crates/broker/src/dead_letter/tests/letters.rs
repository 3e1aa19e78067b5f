//! Dead letters against those that RabbitMQ made of the same messages: `conformance/letters/record.py`.

use bytes::BytesMut;
use machine::Outcome;

use super::super::death::Death;
use super::super::rewrite::write_letter;
use crate::stored::{destination_texts, split_head};

const RECORDED: &str = include_str!("letters.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

pub(super) fn outcome(reason: &str) -> Outcome {
    match reason {
        "rejected" => Outcome::Rejected,
        "expired" => Outcome::Expired,
        "maxlen" => Outcome::Overflowed,
        "delivery_limit" => Outcome::Exhausted,
        other => panic!("{other} is no reason"),
    }
}

#[test]
fn letters_are_rabbitmqs_to_the_byte() {
    let lines: Vec<&str> = RECORDED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len() % 4, 0);
    assert!(lines.len() / 4 > 30, "the recording is not all there");
    for record in lines.chunks(4) {
        let [name, how, before, after] = record else { unreachable!() };
        let how: Vec<&str> = how.split_whitespace().collect();
        let [queue, reason, exchange, key, time] = how[..] else { panic!("{name}: {how:?}") };
        let death = Death {
            queue,
            reason: outcome(reason),
            time_s: time.parse().unwrap(),
            exchange: if exchange == "-" { "" } else { exchange },
            key: (key != "-").then_some(key),
            retries: None,
        };
        let mut head = BytesMut::new();
        write_letter(&bytes(before.trim()), &death, &mut head);
        let expected = BytesMut::from(&bytes(after.trim())[..]);
        assert_eq!(head, expected, "{name}");
    }
}

#[test]
fn a_key_that_is_too_long_is_cut_and_the_message_stays_whole() {
    let key = "k".repeat(254) + "\u{e9}" + &"k".repeat(100);
    let (queue, reason, time_s, exchange) = ("q", Outcome::Rejected, 1, "dlx");
    let death = Death { queue, reason, time_s, exchange, key: Some(&key), retries: None };
    let before = b"\x00\x01k\x10\x00\x02";
    let mut head = BytesMut::new();
    let letter = write_letter(before, &death, &mut head);
    let (destination, properties) = split_head(&head).unwrap();
    assert_eq!(destination_texts(destination), ("dlx", &key[..254]));
    assert_eq!(letter.keys, [&key[..254]]);
    let properties = amqp::Properties::decode(properties).unwrap();
    assert_eq!(properties.delivery_mode, Some(2));
}
