use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

crate::settings! {
    const TABLE in Some("TEST_");
    /// Rows of one batch
    batch: Kind::Count(1..=10_000, "rows"), default("1000"), flag;
    /// How long a batch may take
    deadline: Kind::Time(Duration::from_millis(100)..=Duration::from_secs(60)), default("5s"), reload;
    /// How often at most
    rate: Kind::Rate(0.01..=1e6, "per second"), or("no limit"), default("no limit");
    /// Largest body
    body: Kind::Bytes(4096..=1 << 20), default("64KiB");
    /// Where to be reached
    listen: Kind::Address, or("none"), default("none");
    /// What proves who it is
    secret: Kind::Count(10..=99, ""), secret, variable("PIN");
    /// Whether to say so
    json: Kind::Switch, default("false"), flag;
}

fn read(file: &str, variables: &[(&str, &str)], flags: &[Flag]) -> (Values, Vec<String>) {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    load(&[TABLE], Said { file: Some(("t.toml", file)), variables: &variables, flags })
}

#[test]
fn the_file_is_beaten_by_the_environment_and_that_by_flags() {
    let flags = [Flag::named(setting(TABLE, "batch"), "4".to_owned())];
    let file = "batch = 2\ndeadline = \"2s\"\nbody = 8192\njson = true\n";
    let variables = [("TEST_BATCH", "3"), ("TEST_DEADLINE", "3s"), ("TEST_OTHER", "x")];
    let (values, problems) = read(file, &variables, &flags);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(values.number::<u32>("batch"), 4);
    assert_eq!(values.time("deadline"), Duration::from_secs(3));
    assert_eq!(values.number::<u64>("body"), 8192);
    assert!(values.is_on("json") && values.text("listen").is_none());
    assert_eq!(values.place("batch"), "command line, --batch");
}

#[test]
fn what_is_wrong_is_told_with_its_place_its_unit_and_its_bounds_and_all_at_once() {
    let file = "\nbatch = 0\nspeed = 9\nbody = \"1kB\"\njson = 1.5\nlisten = \"here\"\n";
    let (values, problems) = read(file, &[("TEST_DEADLINE", "2m"), ("PIN", "123456")], &[]);
    let expected = [
        "t.toml:2: batch is \"0\": it must be a number of rows from 1 to 10000",
        "t.toml:3: there is no setting speed. The settings are: batch, deadline, rate, body",
        "t.toml:4: body is \"1kB\": it must be a number of bytes from 4096 to 1048576",
        "t.toml:5: json is of type float: it must be true or false",
        "t.toml:6: listen is \"here\": it must be ADDRESS:PORT",
        "environment, TEST_DEADLINE: deadline is \"2m\": it must be a time of 100ms to 1m",
        "environment, PIN: secret: it must be a number from 10 to 99",
    ];
    for words in expected {
        let count = problems.iter().filter(|problem| problem.starts_with(words)).count();
        assert_eq!(count, 1, "{words}\nis not in {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    assert_eq!(values.number::<u32>("batch"), 1000, "what is wrong has its default");
}

#[test]
fn a_rate_of_a_file_is_a_float_or_a_whole_number() {
    for (file, text) in [("0.5", "0.5"), ("1_000.25", "1000.25"), ("2e3", "2e3"), ("7", "7")] {
        let (values, problems) = read(&format!("rate = {file}\n"), &[], &[]);
        assert_eq!((values.text("rate"), &problems[..]), (Some(text), &[][..]), "{file}");
    }
    for file in ["0.0", "-1.5", "inf", "nan", "1e7"] {
        let (values, problems) = read(&format!("rate = {file}\n"), &[], &[]);
        let wanted = "it must be a number from 0.01 to 1000000 per second";
        assert!(problems.len() == 1 && problems[0].ends_with(wanted), "{file}: {problems:?}");
        assert_eq!(values.text("rate"), None, "what is wrong has its default");
    }
}

#[test]
fn a_number_of_a_file_is_what_toml_says_it_is() {
    for number in ["17", "+17", "1_7", "0x11", "0o21", "0b1_0001"] {
        let (values, problems) = read(&format!("batch = {number}\n"), &[], &[]);
        assert_eq!((values.number::<u32>("batch"), &problems[..]), (17, &[][..]), "{number}");
    }
    for number in ["-0x0", "0xffff", "99999999999999999999999999999999999999999"] {
        let (values, problems) = read(&format!("batch = {number}\n"), &[], &[]);
        assert_eq!((values.number::<u32>("batch"), problems.len()), (1000, 1), "{number}");
    }
}

#[test]
fn sizes_have_units() {
    for (text, count) in [("65MiB", 65 << 20), ("2GB", 2_000_000_000), ("5", 5), ("7 KiB", 7168)] {
        assert_eq!(kind::bytes(text), Some(count), "{text}");
    }
    assert_eq!(kind::bytes("99999999999GiB"), None);
}

#[test]
fn differences_are_named_and_a_default_that_is_said_is_none() {
    let (said, _) = read("batch = 1000\ndeadline = \"6s\"\n", &[], &[]);
    let defaults = Values::defaults(&[TABLE]);
    let keys: Vec<_> = said.differences(&defaults).map(|it| (it.key, it.is_reloaded)).collect();
    assert_eq!(keys, [("deadline", true)]);
}

#[test]
fn the_page_has_all_of_a_setting() {
    let page = page(TABLE);
    let row = "| `batch` | `TEST_BATCH` | `--batch` | `1000` | 1 to 10000 rows | restart | Rows of one batch |";
    assert!(page.contains(row), "{page}");
    assert!(page.contains("| `secret` | `PIN` | – | – | 10 to 99 | restart |"), "{page}");
    assert!(page.contains("| `5s` | 100ms to 1m | reload |"), "{page}");
}
