//! Who is talked to, and what the others are told.

use bytes::BytesMut;
use machine::{NodeId, NodeInfo};

use super::round_trip::written;
use crate::peer::admission::{Admitted, decode_enter, encode_enter};
use crate::peer::frame::take;
use crate::peer::gather::Gather;
use crate::peer::handshake::{
    Acquaintance, Challenge, Greeting, Hello, PROTOCOLS, Purpose, Refusal, Secret, encode_proof,
    encode_refusal, is_no_secret, judge, judge_challenge, no_secret,
};
use crate::peer::limits::FRAME_BYTES_MAX_UNPROVED;

fn hello(node: u64) -> Hello {
    Hello {
        protocols: PROTOCOLS,
        cluster: 0xfeed,
        node: NodeId(node),
        incarnation: 70 + node,
        boot: 5,
        last_boot: 4,
        purpose: Purpose::Data,
        nonce: [node as u8; 16],
    }
}

const STRANGER: Option<Acquaintance> = Some(Acquaintance { incarnation: None, boot: 0, stamp: 0 });

fn known(incarnation: u64, boot: u64) -> Option<Acquaintance> {
    Some(Acquaintance::of_start(Some(incarnation), boot))
}

fn greeting(gather: &Gather) -> Greeting {
    let mut bytes: BytesMut = written(gather, usize::MAX);
    let frame = take(&mut bytes, FRAME_BYTES_MAX_UNPROVED).unwrap().unwrap();
    Greeting::decode(frame).unwrap()
}

#[test]
fn a_member_is_talked_to() {
    assert_eq!(judge(&hello(1), STRANGER, &hello(2)), Ok(()));
    assert_eq!(judge(&hello(1), known(72, 5), &hello(2)), Ok(()), "it lost its connection");
    assert_eq!(judge(&hello(1), known(72, 4), &hello(2)), Ok(()), "it started again");
}

#[test]
fn a_directory_with_an_older_stamp_than_the_node_told_is_refused_and_its_own_process_is_not() {
    let (me, node) = (hello(1), NodeId(2));
    // Node 2 runs, and its directory had 4, then 5 for this start, then 9.
    let mut known = Acquaintance::default().met(&hello(2));
    assert!(known.renewed(5, 9));
    assert!(!known.renewed(5, 9) && !known.renewed(5, 8) && !known.renewed(4, 20));
    assert_eq!(judge(&me, Some(known), &hello(2)), Ok(()), "it lost its connection");
    assert_eq!(known.met(&hello(2)), known, "and is known as before");
    let start = |last_boot| Hello { boot: 30, last_boot, ..hello(2) };
    for last_boot in [4, 5, 8] {
        let refusal = Refusal::EarlierBoot { node, theirs: last_boot, known: 9 };
        assert!(refusal.is_final(), "the copy ends");
        assert_eq!(judge(&me, Some(known), &start(last_boot)), Err(refusal));
    }
    for last_boot in [9, 11] {
        assert_eq!(judge(&me, Some(known), &start(last_boot)), Ok(()), "it started again");
        assert_eq!(known.met(&start(last_boot)), Acquaintance::of_start(Some(72), 30));
    }
}

#[test]
fn a_process_that_counts_on_while_its_copy_took_its_place_is_refused() {
    let mut known = Acquaintance::default().met(&hello(2));
    assert!(known.learn(Some(72), 30), "a copy has started, and the log has it");
    assert!(!known.renewed(5, 90), "the old process goes on somewhere");
    let refused = judge(&hello(1), Some(known), &hello(2));
    assert!(matches!(refused, Err(Refusal::EarlierBoot { .. })), "{refused:?}");
    let another = Acquaintance::of_start(Some(99), 3);
    assert!(!known.learn(Some(99), 3));
    assert_eq!(known, another, "another directory counts anew");
}

#[test]
fn every_refusal_says_what_to_do() {
    let node = NodeId(2);
    let table = [
        (
            Hello { cluster: 0xbeef, ..hello(2) },
            STRANGER,
            Refusal::OtherCluster { node, theirs: 0xbeef, ours: 0xfeed },
            "the same --peers list",
        ),
        (
            Hello { incarnation: 9, ..hello(1) },
            STRANGER,
            Refusal::SameNode { node: NodeId(1) },
            "its own --node-id",
        ),
        (hello(2), None, Refusal::UnknownNode { node }, "`millrace cluster add`"),
        (
            hello(2),
            known(9, 1),
            Refusal::OtherIncarnation { node, theirs: 72, known: 9 },
            "`millrace cluster replace 2 NEW`",
        ),
        (
            hello(2),
            known(72, 6),
            Refusal::EarlierBoot { node, theirs: 4, known: 6 },
            "is an old copy",
        ),
    ];
    for (theirs, known, refusal, words) in table {
        assert_eq!(judge(&hello(1), known, &theirs), Err(refusal.clone()));
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    let more = [
        (Refusal::WrongSecret, "the same cluster_secret"),
        (Refusal::Removed { node }, "stop it"),
        (Refusal::Twin { node }, "Stop this one"),
        (Refusal::OtherNode { node, expected: NodeId(3) }, "correct the --peers list"),
    ];
    let later = Challenge { protocols: (PROTOCOLS.1 + 1, PROTOCOLS.1 + 2), nonce: [1; 16] };
    let refusal = judge_challenge(&later).unwrap_err();
    assert!(refusal.to_string().contains("upgrade the older"), "{refusal}");
    assert_eq!(judge_challenge(&Challenge { protocols: PROTOCOLS, ..later }), Ok(()));
    for (refusal, words) in more {
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}

#[test]
fn what_is_said_comes_back_as_it_was_said() {
    for purpose in [Purpose::Data, Purpose::Bulk, Purpose::Knock, Purpose::Join] {
        let hello = Hello { purpose, ..hello(3) };
        let mut gather = Gather::default();
        hello.encode(&mut gather);
        assert_eq!(greeting(&gather), Greeting::Hello(hello));
    }
    let mut gather = Gather::default();
    encode_proof(&mut gather, &[3; 32]);
    assert_eq!(greeting(&gather), Greeting::Proof([3; 32]));
    let refusal = Refusal::UnknownNode { node: NodeId(9) };
    let mut gather = Gather::default();
    encode_refusal(&mut gather, &refusal);
    assert_eq!(greeting(&gather), Greeting::Refused(refusal.to_string()));
    let refusal = Refusal::Removed { node: NodeId(9) };
    let mut gather = Gather::default();
    encode_refusal(&mut gather, &refusal);
    assert_eq!(greeting(&gather), Greeting::Expelled(refusal.to_string()));
}

#[test]
fn a_proof_is_good_for_its_secret_its_side_and_its_connection_only() {
    let (dialer, acceptor) = (hello(2), hello(1));
    let secret = Secret::new("s3cret");
    let proof = secret.prove(true, &dialer, &acceptor);
    assert!(secret.is_proof(&proof, true, &dialer, &acceptor));
    assert!(!secret.is_proof(&proof, false, &dialer, &acceptor));
    assert!(!Secret::new("other").is_proof(&proof, true, &dialer, &acceptor));
    let none = no_secret(0xfeed);
    assert!(is_no_secret(&none) && !is_no_secret("cluster-feed"));
    assert!(!Secret::new(&none).is_proof(&proof, true, &dialer, &acceptor));
    let again = Hello { nonce: [9; 16], ..hello(1) };
    assert!(!secret.is_proof(&proof, true, &dialer, &again));
    assert!(!secret.is_proof(&proof, true, &Hello { boot: 6, ..hello(2) }, &acceptor));
}

#[test]
fn the_answer_to_a_challenge_is_good_for_its_secret_its_side_and_its_connection_only() {
    let challenge = |nonce| Challenge { protocols: PROTOCOLS, nonce: [nonce; 16] };
    let (dialer, acceptor) = (challenge(1), challenge(2));
    let secret = Secret::new("s3cret");
    let answer = secret.answer(true, &dialer, &acceptor);
    assert!(secret.is_answer(&answer, true, &dialer, &acceptor));
    assert!(!secret.is_answer(&answer, false, &dialer, &acceptor));
    assert!(!secret.is_answer(&answer, true, &acceptor, &dialer), "what we said comes back");
    assert!(!secret.is_answer(&answer, true, &dialer, &challenge(3)));
    assert!(!Secret::new("other").is_answer(&answer, true, &dialer, &acceptor));
    let mut gather = Gather::default();
    dialer.encode(&mut gather);
    assert_eq!(greeting(&gather), Greeting::Challenge(dialer));
}

#[test]
fn who_wants_to_join_needs_no_cluster_and_no_name() {
    let joiner = Hello { cluster: 0, purpose: Purpose::Join, ..hello(2) };
    assert_eq!(judge(&hello(1), None, &joiner), Ok(()));
    let elsewhere = Hello { cluster: 0xbeef, ..joiner.clone() };
    assert!(matches!(judge(&hello(1), None, &elsewhere), Err(Refusal::OtherCluster { .. })));
    let double = Hello { node: NodeId(1), ..joiner };
    assert!(matches!(judge(&hello(1), None, &double), Err(Refusal::SameNode { .. })));
    let nobody = Hello { cluster: 0, ..hello(2) };
    assert!(matches!(judge(&hello(1), STRANGER, &nobody), Err(Refusal::OtherCluster { .. })));
}

#[test]
fn what_a_joiner_needs_comes_back_as_it_was_said() {
    let node = |node| NodeInfo { node: NodeId(node), address: "a:1".to_owned(), incarnation: 7 };
    let admitted = Admitted {
        groups_per_node: 8,
        founders: vec![(NodeId(1), "a:1".to_owned()), (NodeId(2), String::new())],
        members: vec![node(1), node(3)],
    };
    let mut gather = Gather::default();
    admitted.encode(&mut gather).unwrap();
    encode_enter(&mut gather, "c.example:7000").unwrap();
    let mut bytes = written(&gather, usize::MAX);
    let mut next = || take(&mut bytes, FRAME_BYTES_MAX_UNPROVED).unwrap().unwrap();
    assert_eq!(Admitted::decode(next()), Ok(admitted));
    assert_eq!(decode_enter(next()), Ok("c.example:7000".to_owned()));
    let mut gather = Gather::default();
    encode_enter(&mut gather, "two words").unwrap();
    let frame = take(&mut written(&gather, 9), FRAME_BYTES_MAX_UNPROVED).unwrap().unwrap();
    assert!(decode_enter(frame).is_err());
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", Secret::new("s3cret")), "Secret");
}
