//! What a table must be, and how batches are cut.

use bytes::Bytes;

use super::*;
use crate::inbox::{Key, Route};
use crate::mysql::shape::{Column, Index, Kind};

fn row(bytes: usize) -> Row {
    let properties = amqp::Properties { message_id: Some("7"), ..Default::default() };
    let route = Route { exchange: "", routing_key: "key", key: &Key::RoutingKey };
    Row::new(route, &properties, Bytes::from(vec![0; bytes]), || unreachable!("it has an id"))
}

fn table() -> TableName {
    TableName { schema: None, name: "inbox_messages".into() }
}

fn column(name: &str) -> Column {
    Column {
        name: name.into(),
        kind: Kind::Text,
        type_text: "text".into(),
        is_nullable: true,
        is_generated: false,
        is_counted: false,
        charset: Some("utf8mb4".into()),
    }
}

fn shape() -> Shape {
    let columns = ONCE.map(str::to_owned).to_vec();
    Shape {
        name: table(),
        engine: "InnoDB".into(),
        rows: 0,
        columns: COLUMNS.map(column).to_vec(),
        indexes: vec![Index { name: "once".into(), is_unique: true, columns }],
    }
}

fn exact() -> Vec<(String, String)> {
    ONCE.map(|name| (name.to_owned(), "utf8mb4_nopad_bin".to_owned())).to_vec()
}

#[test]
fn a_table_that_would_take_two_messages_for_one_is_no_inbox() {
    assert_eq!(problem(&shape(), &exact()), None);
    let mut pads = exact();
    pads[1].1 = "utf8mb4_bin".into();
    let mut folds = exact();
    folds[0].1 = "utf8mb4_general_ci".into();
    for collations in [pads, folds] {
        let why = problem(&shape(), &collations).expect("it is none");
        assert!(why.contains("utf8mb4_nopad_bin on MariaDB"), "{why}");
    }
}

#[test]
fn a_table_without_columns_unique_index_or_transactions_is_no_inbox() {
    let mut lacks = shape();
    lacks.columns.retain(|column| column.name != "payload");
    let mut repeats = shape();
    repeats.indexes[0].is_unique = false;
    let mut part = shape();
    part.indexes[0].columns[1] = String::new();
    let memory = Shape { engine: "MyISAM".into(), ..shape() };
    for (shape, word) in
        [(lacks, "payload"), (repeats, "unique"), (part, "unique"), (memory, "MyISAM")]
    {
        let why = problem(&shape, &exact()).expect("it is none");
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_batch_is_cut_into_few_lengths_that_the_server_takes_at_once() {
    let rows: Vec<Row> = (0..500).map(|_| row(10)).collect();
    assert_eq!(pieces(&rows, 16 << 20), Ok(vec![256, 128, 64, 32, 16, 4]));
    assert_eq!(pieces(&[], 16 << 20), Ok(vec![]));
    let rows: Vec<Row> = (0..3).map(|_| row(400_000)).collect();
    assert_eq!(pieces(&rows, 1 << 20), Ok(vec![2, 1]));
    let rows = [row(10), row(2 << 20)];
    let why = pieces(&rows, 1 << 20).expect_err("it is too large");
    assert!(why.contains("max_allowed_packet"), "{why}");
    assert_eq!(pieces(&rows, 16 << 20), Ok(vec![2]));
}

#[test]
fn names_are_quoted_and_what_is_there_stays() {
    let table = TableName { schema: Some("my`db".into()), name: "in box".into() };
    assert!(install(&table, Server::Mysql).contains("`my``db`.`in box`"));
    let sql = store(&table, 2);
    assert!(sql.starts_with("INSERT INTO `my``db`.`in box` "), "{sql}");
    assert_eq!(sql.matches('?').count(), 2 * COLUMNS.len());
}

#[test]
fn the_table_is_the_one_that_the_documentation_shows() {
    let shown = include_str!("../../../../../docs/inbox.md");
    assert_eq!(Server::of_url("mariadb://root@localhost/shop"), Server::MariaDb);
    let install = install(&table(), Server::MariaDb).replace("`inbox_messages`", "inbox_messages");
    for line in install.replace("IF NOT EXISTS ", "").lines() {
        assert!(shown.contains(line), "docs/inbox.md does not show: {line}");
    }
}
