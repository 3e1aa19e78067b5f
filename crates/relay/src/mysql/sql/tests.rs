//! What statements look like. That they do what they should is seen with a real server: `trials/tests/relay_mysql.rs`.

use super::*;
use crate::mapping::Preset;
use crate::mysql::shape::{Column, Index};

fn statements(change: impl FnOnce(&mut Config)) -> Statements {
    let broker = "amqp://localhost".parse().expect("it is a URL");
    let mut mapping = Mapping::preset(Preset::OutboxMessages);
    mapping.id = "i`d".into();
    let mut config = Config::new("mysql://h/d", broker, mapping);
    change(&mut config);
    let column = Column {
        name: "i`d".into(),
        kind: Kind::Bytes,
        type_text: "binary(16)".into(),
        is_nullable: false,
        is_generated: false,
        is_counted: false,
        charset: None,
    };
    let columns = vec!["i`d".into()];
    let index = Index { name: "PRIMARY".into(), is_unique: true, columns };
    let shape = Shape {
        name: TableName { schema: Some("shop".into()), name: "out`box".into() },
        engine: "InnoDB".into(),
        rows: 0,
        columns: vec![column],
        indexes: vec![index],
    };
    Statements::new(&config, &shape).expect("its id has an index")
}

#[test]
fn names_are_quoted_wherever_they_stand() {
    let statements = statements(|config| config.order = Order::Strict);
    let form = Fetch { without_parked: true, lanes: Some(vec![0]) };
    let all = [statements.fetch(&form), statements.choose(&form), statements.lock(2)];
    let all = all.into_iter().chain(statements.mark(2)).chain([statements.purge("o.`a`", 5)]);
    for sql in all {
        let rest = sql.replace("`i``d`", "").replace("`out``box`", "");
        assert!(!rest.contains("i`d") && !rest.contains("out`"), "{sql}");
    }
}

#[test]
fn a_binary_id_is_found_by_its_hexadecimal() {
    let statements = statements(|_| ());
    assert!(statements.mark(2)[0].ends_with("WHERE o.`i``d` IN (UNHEX(?), UNHEX(?))"));
    assert!(statements.fetch(&Fetch::default()).starts_with("SELECT LOWER(HEX(o.`i``d`)), "));
}

#[test]
fn under_an_order_a_locked_row_is_waited_for_and_else_skipped() {
    let statements = statements(|_| ());
    assert!(statements.fetch(&Fetch::default()).ends_with("LIMIT ? FOR UPDATE SKIP LOCKED"));
    let lock = statements.lock(1);
    assert!(lock.contains("FORCE INDEX (`PRIMARY`)") && lock.ends_with("FOR UPDATE"), "{lock}");
}
