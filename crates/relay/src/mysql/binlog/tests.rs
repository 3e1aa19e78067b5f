//! What becomes of transactions, by events made up here.

use super::*;

fn assembler() -> Assembler {
    let table = TableName { schema: Some("shop".into()), name: "outbox_messages".into() };
    let place = Place::of("bin.000001", 4).expect("it is a place");
    Assembler::new(&table, place, State::default())
}

fn tell(assembler: &mut Assembler, events: Vec<What>) -> Result<(), Error> {
    for what in events {
        let begin = assembler.place().at.0 as u32;
        let place = Some((begin, begin + 10));
        assembler.event(Event { place, at: Some(CommitTime(7)), what })?;
    }
    Ok(())
}

fn begin(sequence: u64) -> What {
    What::Begin { gtid: Gtid { domain: 0, server: 1, sequence }, is_standalone: false }
}

fn row(text: &'static str) -> What {
    What::Rows(vec![Bytes::from_static(text.as_bytes())])
}

fn query(text: &str) -> What {
    What::Query(text.into())
}

/// Rows that were published, in their order; each behind a Begin and before a Commit.
fn published(assembler: &mut Assembler) -> Vec<String> {
    let (mut rows, mut is_open) = (Vec::new(), false);
    while let Some(input) = assembler.take() {
        match input {
            Input::Begin { .. } => {
                assert!(!is_open);
                is_open = true;
            }
            Input::Row { data, .. } => {
                assert!(is_open);
                rows.push(String::from_utf8_lossy(&data).into_owned());
            }
            Input::Commit { .. } => {
                assert!(is_open);
                is_open = false;
            }
            other => assert!(matches!(other, Input::KeepAlive { .. }), "{other:?}"),
        }
    }
    rows
}

#[test]
fn rows_are_published_with_their_commit_and_never_those_that_were_undone() {
    let mut log = assembler();
    tell(&mut log, vec![begin(1), row("a"), row("b")]).expect("they are read");
    assert_eq!(published(&mut log), Vec::<String>::new(), "nothing is committed yet");
    let more = vec![
        What::Commit,
        begin(2),
        row("c"),
        query("ROLLBACK"),
        begin(3),
        row("d"),
        query("SAVEPOINT `s`"),
        row("e"),
        query("ROLLBACK TO `s`"),
        row("f"),
        query("COMMIT"),
    ];
    tell(&mut log, more).expect("they are read");
    assert_eq!(published(&mut log), ["a", "b", "d", "f"]);
    assert_eq!(log.state(log.place().at), "0-1-3");
}

#[test]
fn a_transaction_without_its_end_is_dropped_where_the_next_file_begins() {
    let mut log = assembler();
    let rotate = What::Rotate { file: "bin.000002".into(), offset: 4 };
    tell(&mut log, vec![begin(1), row("a"), rotate, begin(2), row("b"), What::Commit])
        .expect("they are read");
    assert_eq!(published(&mut log), ["b"]);
    assert_eq!(log.place().words(), "bin.000002:34");
}

#[test]
fn rows_that_were_written_as_a_statement_end_the_reading() {
    for text in [
        "INSERT INTO outbox_messages VALUES (1)",
        "/* a note */ replace into `Outbox_Messages` select 1",
        "load data infile 'x' into table shop.outbox_messages",
    ] {
        let told = tell(&mut assembler(), vec![begin(1), query(text)]).unwrap_err();
        assert!(told.to_string().contains("binlog_format = ROW"), "{told}");
    }
    let others = ["ALTER TABLE outbox_messages ADD c int", "INSERT INTO orders VALUES (1)"];
    for text in others {
        assert_eq!(tell(&mut assembler(), vec![begin(1), query(text)]), Ok(()));
    }
}

#[test]
fn what_is_too_large_to_keep_is_handed_on_and_cannot_be_undone() {
    let large = || What::Rows(vec![Bytes::from(vec![b'x'; HELD_BYTES_MAX / 2 + 1])]);
    let mut log = assembler();
    tell(&mut log, vec![begin(1), large(), large(), row("last")]).expect("they are read");
    assert!(matches!(log.take(), Some(Input::Begin { .. })), "it is on its way");
    let mut rows = 0;
    while let Some(Input::Row { .. }) = log.take() {
        rows += 1;
    }
    assert_eq!(rows, 2);
    let told = tell(&mut log, vec![query("ROLLBACK")]).unwrap_err();
    assert!(told.to_string().contains("undone"), "{told}");
}

#[test]
fn xa_is_refused_only_where_it_wrote_to_the_outbox() {
    assert_eq!(tell(&mut assembler(), vec![begin(1), What::Prepared]), Ok(()));
    let told = tell(&mut assembler(), vec![begin(1), row("a"), What::Prepared]).unwrap_err();
    assert!(told.to_string().contains("XA"), "{told}");
}

#[test]
fn a_place_behind_four_gigabytes_is_told() {
    let mut log = assembler();
    let far = Event { place: Some((4, u32::MAX)), at: None, what: What::Other };
    assert_eq!(log.event(far), Ok(()));
    let wrapped = Event { place: Some((0, 100)), at: None, what: What::Other };
    assert!(log.event(wrapped).is_err_and(|told| told.to_string().contains("4 GB")));
}
