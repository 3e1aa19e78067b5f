//! The settings of a relay: the table of them, and the [`Config`] that their values make.
//!
//! Where a relay serves its metrics and what it logs is its command's. So is reading URLs from files.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use client::{Backoff, Url};
use service::settings::Kind::{Any, Bytes, Choice, Count, Time};
use service::settings::{Values, setting};
use service::{Attempts, Jitter, settings};

use crate::cloudevents::{CloudEvents, Mode};
use crate::config::{Config, OnDead, OnSuccess, Order, Pipeline, Source};
use crate::limits::{
    ATTEMPTS_MAX, BATCH_DEADLINE_MAX, BATCH_DEADLINE_MIN, BATCH_ROWS_MAX, COLUMNS_MAX, LANES_MAX,
    WINDOW_MAX, WORKERS_MAX,
};
use crate::mapping::{HeaderColumn, Mapping, Preset};
use crate::mysql::is_mysql;
use crate::template::Template;

/// Messages of one key in flight where nobody says how many.
const ORDER_WINDOW: u32 = 4096;
const MS: Duration = Duration::from_millis(1);

settings! {
    /// What every command of the relay is told: the database, the broker, the table, and how to drain it.
    pub const SETTINGS in None;

    /// The database: postgres://user:password@host:5432/name?sslmode=verify-full&sslrootcert=FILE, or mysql://
    /// or mariadb:// with the same options. With the log as source one host, under a name that leads to the
    /// primary
    database: Any("URL"), flag, secret, variable("DATABASE_URL");
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// with cacertfile=FILE
    url: Any("URL"), default("amqp://guest:guest@localhost:5672/%2F"), flag, secret, variable("AMQP_URL");
    /// A file with the database's URL and nothing else, such as a secret that is mounted; a URL that is
    /// given itself wins
    database_file: Any("FILE"), otherwise("none"), flag, variable("DATABASE_URL_FILE");
    /// A file with the broker's URL and nothing else
    url_file: Any("FILE"), otherwise("none"), flag, variable("AMQP_URL_FILE");
    /// Columns that are known
    preset: Choice(&["outbox_messages", "debezium"]), default("outbox_messages"), flag;
    /// The outbox table, with its schema if need be
    table: Any("TABLE"), otherwise("the preset's"), flag;
    /// Column that is unique; it becomes the message-id
    id_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Column of the body: json, jsonb, text or bytea
    payload_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Column of the property `type`; none: no such property
    type_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Column of the property `timestamp`; none: no such property
    occurred_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Columns that rows are ordered by, with commas between; none: as they lie in the table
    order_by: Any("COLUMNS"), otherwise("the preset's"), flag;
    /// Column that is NULL until a row is published; none: there is none
    processed_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Value of the processed column in a published row: true, sent
    processed_value: Any("VALUE"), otherwise("the time"), flag;
    /// Value of the processed column in a dead row: failed
    dead_value: Any("VALUE"), otherwise("with --processed-value, it stays as it is"), flag;
    /// Which rows wait, as an SQL condition: NOT sent, or status = 'pending'
    pending_where: Any("SQL"), otherwise("the processed column is NULL"), flag;
    /// Column for the error of a row that is dead; none: there is none
    error_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Column with a JSON object: the headers
    headers_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Columns that are headers, with commas between: tenant, trace_id=traceparent; none: there are none
    header_columns: Any("COLUMNS"), otherwise("the preset's"), flag;
    /// Column of the property correlation-id
    correlation_id_column: Any("COLUMN"), otherwise("no such property"), flag;
    /// Column of the property content-type; where it is NULL, --content-type
    content_type_column: Any("COLUMN"), otherwise("--content-type"), flag;
    /// Column of the property priority: 0 to 255
    priority_column: Any("COLUMN"), otherwise("no such property"), flag;
    /// Column of the property expiration: milliseconds
    expiration_column: Any("COLUMN"), otherwise("no such property"), flag;
    /// Column whose value keeps the order of its rows, under --order key
    key_column: Any("COLUMN"), otherwise("the preset's"), flag;
    /// Exchange, as a template over columns: events, or outbox.{tenant}
    exchange: Any("TEMPLATE"), otherwise("the default exchange"), flag;
    /// Routing key, as a template over columns
    routing_key: Any("TEMPLATE"), otherwise("the preset's, {type}"), flag;
    /// Property content-type
    content_type: Any("TYPE"), otherwise("application/json"), flag;
    /// Publish rows as CloudEvents: their attributes as headers (binary), or all of an event as JSON (structured)
    cloudevents: Choice(&["none", "binary", "structured"]), default("none"), flag;
    /// Attribute source of the CloudEvents, as a template over columns: /shop, or urn:shop:{tenant}
    cloudevents_source: Any("TEMPLATE"), otherwise("needed with --cloudevents"), flag;
    /// Where rows come from: the table (poll), the database's log (wal), or messages in the log
    source: Choice(&["poll", "wal", "messages"]), default("poll"), flag;
    /// Replication slot, for wal and messages; of the server, not of a database
    slot: Any("NAME"), otherwise("millrace_relay_DATABASE"), flag;
    /// Publication, for wal and messages
    publication: Any("NAME"), default("millrace_relay"), flag;
    /// Prefix of pg_logical_emit_message, for messages
    prefix: Any("TEXT"), default("outbox"), flag;
    /// What happens to a published row
    on_success: Choice(&["update", "delete", "archive"]), otherwise("update; delete without a processed column"), flag;
    /// Ordering guarantee: none, per key, or strict
    order: Choice(&["none", "key", "strict"]), default("none"), flag;
    /// What a dead row means for the rest of its key: it waits, or goes on
    on_dead: Choice(&["block", "skip"]), default("block"), flag;
    /// Connections that drain at the same time, with poll
    workers: Count(1..=WORKERS_MAX as u64, "connections"), default("4"), flag;
    /// Lanes that keys are spread over, a power of two
    lanes: Count(1..=LANES_MAX as u64, "lanes"), default("64"), flag;
    /// How rows of one key are published: one at a time (wait), or several in flight; then rows that the broker stored
    /// behind one that failed are published again (repeat), or stay and are told (report)
    order_pipeline: Choice(&["wait", "repeat", "report"]), otherwise("wait; report with an --order-window above 1"), flag;
    /// Unconfirmed messages of one key, where they are pipelined
    order_window: Count(1..=WINDOW_MAX as u64, "messages"), otherwise("1 with wait, else 4096"), flag;
    /// Rows of one transaction; their bytes are bounded, too: 8 MiB over the number of workers, at least 1 MiB
    batch: Count(1..=BATCH_ROWS_MAX as u64, "rows"), default("1000"), flag;
    /// Unconfirmed messages of one worker
    window: Count(1..=WINDOW_MAX as u64, "messages"), default("4096"), flag;
    /// How long a batch may hold its transaction
    batch_deadline: Time(BATCH_DEADLINE_MIN..=BATCH_DEADLINE_MAX), default("5s"), flag;
    /// Shortest wait while there is nothing to do
    poll_min: Time(MS..=Duration::MAX), default("10ms"), flag;
    /// Longest wait while there is nothing to do
    poll_max: Time(MS..=Duration::MAX), default("500ms"), flag;
    /// LISTEN on this channel, and look at once when somebody notifies
    listen: Any("CHANNEL"), otherwise("nobody is listened to"), flag;
    /// Attempts before a message is dead
    max_attempts: Count(1..=ATTEMPTS_MAX as u64, "attempts"), default("20"), flag;
    /// Longest wait before the second attempt; it doubles
    retry_min: Time(Duration::ZERO..=Duration::MAX), default("2s"), flag;
    /// Longest wait between attempts
    retry_max: Time(Duration::ZERO..=Duration::MAX), default("10m"), flag;
    /// Largest body; a larger one is dead at once
    body_bytes_max: Bytes(0..=u64::MAX), default("16MiB"), flag;
}

impl Config {
    /// Defaults for a database, a broker and a table.
    pub fn new(database: impl Into<String>, broker: Url, mapping: Mapping) -> Self {
        Self::of(&Values::defaults(&[SETTINGS]), database.into(), broker, mapping)
    }

    /// What the settings say, for a database and a broker whose URLs were read.
    ///
    /// # Errors
    /// All that is wrong, each in a sentence.
    pub fn read(values: &Values, database: String, broker: Url) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mapping = mapping(values, &mut problems);
        let config = Self::of(values, database, broker, mapping);
        problems.extend(config.problems());
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// The same as a source with a name among several: what nobody has named is called by it.
    #[must_use]
    pub fn named(mut self, name: &str, values: &Values) -> Self {
        self.source_name = Some(name.to_owned());
        if values.given("publication").is_none()
            && let Source::Wal { publication, .. } | Source::Messages { publication, .. } =
                &mut self.source
        {
            *publication = format!("{publication}_{name}");
        }
        self
    }

    fn of(values: &Values, database: String, broker: Url, mapping: Mapping) -> Self {
        let slot = values.text("slot").unwrap_or("millrace_relay").to_owned();
        let publication = values.words("publication");
        let source = match values.text("source") {
            Some("wal") => Source::Wal { slot, publication },
            Some("messages") => {
                Source::Messages { slot, publication, prefix: values.words("prefix") }
            }
            _ => Source::Poll,
        };
        let on_success = match values.text("on_success") {
            Some("update") => OnSuccess::Update,
            Some("delete") => OnSuccess::Delete,
            Some("archive") => OnSuccess::Archive,
            _ if mapping.processed.is_some() => OnSuccess::Update,
            _ => OnSuccess::Delete,
        };
        let order = match values.text("order") {
            Some("key") => Order::Key,
            Some("strict") => Order::Strict,
            _ => Order::None,
        };
        let on_dead = match values.text("on_dead") {
            Some("skip") => OnDead::Skip,
            _ => OnDead::Block,
        };
        let order_window = values.count("order_window");
        let pipeline = match values.text("order_pipeline") {
            Some("wait") => Pipeline::Wait,
            Some("repeat") => Pipeline::Repeat,
            Some("report") => Pipeline::Report,
            // As it was before there was a choice.
            _ if order_window.is_some_and(|count: u32| count > 1) => Pipeline::Report,
            _ => Pipeline::Wait,
        };
        let is_pipelined = pipeline != Pipeline::Wait;
        Self {
            database,
            broker,
            mapping,
            source,
            source_name: None,
            has_default_slot: values.given("slot").is_none(),
            on_success,
            order,
            on_dead,
            workers: values.number("workers"),
            lanes: values.number("lanes"),
            pipeline,
            order_window: order_window.unwrap_or(if is_pipelined { ORDER_WINDOW } else { 1 }),
            batch: values.number("batch"),
            window: values.number("window"),
            batch_deadline: values.time("batch_deadline"),
            poll_min: values.time("poll_min"),
            poll_max: values.time("poll_max"),
            listen: values.text("listen").map(str::to_owned),
            attempts: attempts(values),
            body_bytes_max: values.number("body_bytes_max"),
            no_confirms: false,
        }
    }

    /// What is wrong with it, each in a sentence. Empty: it can run.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, words: String| {
            if !is_right {
                problems.push(words);
            }
        };
        for (key, value) in [
            ("workers", self.workers),
            ("batch", self.batch),
            ("window", self.window),
            ("order_window", self.order_window),
            ("max_attempts", self.attempts.max),
        ] {
            let why = setting(SETTINGS, key).check(&value.to_string()).err();
            check(why.is_none(), format!("{key} is {value}: {}", why.unwrap_or_default()));
        }
        check(
            self.lanes.is_power_of_two() && self.lanes <= LANES_MAX,
            format!("lanes is {}: it is a power of two up to {LANES_MAX}", self.lanes),
        );
        let deadline = self.batch_deadline;
        check(
            (BATCH_DEADLINE_MIN..=BATCH_DEADLINE_MAX).contains(&deadline),
            format!("batch_deadline is {deadline:?}: it is 100 ms to {BATCH_DEADLINE_MAX:?}"),
        );
        check(
            self.poll_min <= self.poll_max && self.poll_min >= Duration::from_millis(1),
            "poll_min is at least 1 ms and not above poll_max".into(),
        );
        check(
            self.mapping.layout().columns.len() <= COLUMNS_MAX,
            format!("more than {} columns are read", COLUMNS_MAX),
        );
        let is_poll = self.source == Source::Poll;
        check(
            !(is_poll && self.on_success == OnSuccess::Update && self.mapping.processed.is_none()),
            "on_success is update, but no processed column is named: name it (--processed-column), \
             or choose delete or archive"
                .into(),
        );
        let Mapping { processed, processed_value, dead_value, pending_where, .. } = &self.mapping;
        check(
            processed_value.is_none() || (processed.is_some() && pending_where.is_some()),
            "a processed value needs its column (--processed-column), and which rows wait: --pending-where \"NOT sent\", \
             or \"status = 'pending'\""
                .into(),
        );
        check(
            dead_value.is_none() || processed_value.is_some(),
            "a dead value needs a processed value (--processed-value)".into(),
        );
        check(
            self.order != Order::Key || self.mapping.key.is_some(),
            "order is key, but no key column is named: name it (--key-column)".into(),
        );
        check(
            self.pipeline == Pipeline::Wait || self.order != Order::None,
            "rows of one key are pipelined (order_pipeline, order_window), but order is none: choose key or strict".into(),
        );
        check(
            self.pipeline != Pipeline::Wait || self.order_window == 1,
            format!(
                "order_window is {}, but order_pipeline is wait, which has one row of a key in flight: leave one of them out",
                self.order_window
            ),
        );
        let Backoff { first, longest } = self.attempts.backoff;
        check(
            first <= longest,
            format!("retry_min is {first:?}, which is above retry_max, {longest:?}"),
        );
        check(
            is_poll || self.on_success != OnSuccess::Archive,
            "on_success is archive, but the source is the log, which moves no row".into(),
        );
        let is_mysql = is_mysql(&self.database);
        check(
            !is_mysql || !matches!(self.source, Source::Messages { .. }),
            "the source is messages, but the database is MariaDB or MySQL, whose log has none: --source poll, or wal for \
             MariaDB's binlog".into(),
        );
        check(
            !is_mysql || self.listen.is_none(),
            "listen is given, but the database is MariaDB or MySQL, which has no NOTIFY".into(),
        );
        check(
            is_poll || self.listen.is_none(),
            "listen is given, but the source is the log, which needs no NOTIFY".into(),
        );
        check(
            !is_poll || self.order == Order::None || !self.mapping.order_by.is_empty(),
            "an order was asked for, but no column to order by is named (--order-by)".into(),
        );
        problems
    }
}

/// How often the relay tries by itself, and when. A full jitter could try a message many times at once.
pub(crate) fn attempts(values: &Values) -> Attempts {
    let backoff = Backoff { first: values.time("retry_min"), longest: values.time("retry_max") };
    Attempts { max: values.number("max_attempts"), backoff, jitter: Jitter::Half }
}

/// The table and its columns.
fn mapping(values: &Values, problems: &mut Vec<String>) -> Mapping {
    let preset = values.text("preset").and_then(|name| name.parse().ok());
    let mut mapping = Mapping::preset(preset.unwrap_or(Preset::OutboxMessages));
    set(values, "table", &mut mapping.table, problems);
    set(values, "exchange", &mut mapping.exchange, problems);
    set(values, "routing_key", &mut mapping.routing_key, problems);
    set(values, "id_column", &mut mapping.id, problems);
    set(values, "payload_column", &mut mapping.payload, problems);
    set(values, "content_type", &mut mapping.content_type, problems);
    for (key, column) in [
        ("type_column", &mut mapping.message_type),
        ("occurred_column", &mut mapping.occurred),
        ("processed_column", &mut mapping.processed),
        ("error_column", &mut mapping.error),
        ("headers_column", &mut mapping.headers),
        ("correlation_id_column", &mut mapping.correlation_id),
        ("content_type_column", &mut mapping.content_type_column),
        ("priority_column", &mut mapping.priority),
        ("expiration_column", &mut mapping.expiration),
        ("key_column", &mut mapping.key),
    ] {
        if let Some(text) = values.given(key) {
            *column = (text != "none" && !text.is_empty()).then(|| text.to_owned());
        }
    }
    for (key, setting) in [
        ("processed_value", &mut mapping.processed_value),
        ("dead_value", &mut mapping.dead_value),
        ("pending_where", &mut mapping.pending_where),
    ] {
        *setting = values.given(key).map(str::to_owned);
    }
    if let Some(text) = values.given("order_by") {
        mapping.order_by = list(text).map(str::to_owned).collect();
    }
    if let Some(text) = values.given("header_columns") {
        let mut keep = |error: String| problems.push(values.problem("header_columns", &error));
        let headers = list(text).map(str::parse::<HeaderColumn>);
        mapping.header_columns =
            headers.filter_map(|header| header.map_err(&mut keep).ok()).collect();
    }
    mapping.cloudevents = cloudevents(values, problems);
    mapping
}

fn cloudevents(values: &Values, problems: &mut Vec<String>) -> Option<CloudEvents> {
    let mode = match values.text("cloudevents") {
        Some("binary") => Mode::Binary,
        Some("structured") => Mode::Structured,
        _ => return None,
    };
    if values.given("cloudevents_source").is_none() {
        problems.push("a CloudEvent needs a source: --cloudevents-source /shop".into());
    }
    let mut source = Template::default();
    set(values, "cloudevents_source", &mut source, problems);
    Some(CloudEvents { mode, source })
}

fn set<T: FromStr<Err: fmt::Display>>(
    values: &Values,
    key: &str,
    place: &mut T,
    problems: &mut Vec<String>,
) {
    if let Some(value) = values.parsed(key, problems) {
        *place = value;
    }
}

/// Names with commas between; `none` is none.
fn list(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.trim() == "none" { "" } else { text };
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use service::settings::{Said, load};

    use super::*;

    fn read(file: &str) -> Result<Config, Vec<String>> {
        let variables = BTreeMap::new();
        let said = Said { file: Some(("r.toml", file)), variables: &variables, flags: &[] };
        let (values, mut problems) = load(&[SETTINGS], said);
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let config = Config::read(&values, "postgres://h/d".into(), broker);
        match config {
            Ok(config) if problems.is_empty() => Ok(config),
            Ok(_) => Err(problems),
            Err(more) => {
                problems.extend(more);
                Err(problems)
            }
        }
    }

    #[test]
    fn cloud_events_need_a_source() {
        let problems = read("cloudevents = \"binary\"\n").expect_err("it has no source");
        assert!(problems.concat().contains("--cloudevents-source"), "{problems:?}");
        let file = "cloudevents = \"structured\"\ncloudevents_source = \"/shop/{tenant}\"\n";
        let mapping = read(file).expect("it is fine").mapping;
        assert!(mapping.layout().columns.contains(&"tenant".to_owned()));
        assert_eq!(mapping.cloudevents.map(|events| events.mode), Some(Mode::Structured));
        assert_eq!(read("").expect("it is fine").mapping.cloudevents, None);
    }

    #[test]
    fn none_is_no_column_also_where_several_may_stand() {
        let file = "preset = \"debezium\"\norder_by = \"none\"\nheader_columns = \" none \"\n";
        let mapping = read(file).expect("it is right").mapping;
        assert!(mapping.order_by.is_empty() && mapping.header_columns.is_empty());
        let file = "header_columns = \"tenant, trace = traceparent,\"\n";
        let headers = read(file).expect("it is right").mapping.header_columns;
        let names: Vec<_> = headers.iter().map(|it| (&*it.column, &*it.header)).collect();
        assert_eq!(names, [("tenant", "tenant"), ("trace", "traceparent")]);
    }

    #[test]
    fn all_problems_are_told_together_with_their_lines() {
        let file = "source = \"kafka\"\norder = \"sorted\"\nworkers = 0\nexchange = \"{\"\nlanes = 3\n\
                    batch_deadline = \"2m\"\nposll_min = \"1s\"\n";
        let problems = read(file).expect_err("nothing is right").join("\n");
        for words in [
            "r.toml:1: source is \"kafka\": it must be poll, wal or messages",
            "r.toml:2: order is \"sorted\": it must be none, key or strict",
            "r.toml:3: workers is \"0\": it must be a number of connections from 1 to 64",
            "r.toml:4: exchange is \"{\": ",
            "lanes is 3: it is a power of two",
            "r.toml:6: batch_deadline is \"2m\": it must be a time of 100ms to 1m",
            "r.toml:7: there is no setting posll_min",
        ] {
            assert!(problems.contains(words), "{words} is not in {problems}");
        }
    }

    #[test]
    fn rows_of_a_key_are_pipelined_only_where_somebody_asks_for_it() {
        for (file, pipeline, window) in [
            ("", Pipeline::Wait, 1),
            ("order_pipeline = \"repeat\"", Pipeline::Repeat, ORDER_WINDOW),
            ("order_pipeline = \"report\"\norder_window = 9", Pipeline::Report, 9),
            // As it was before there was a choice.
            ("order_window = 9", Pipeline::Report, 9),
            ("order_window = 1", Pipeline::Wait, 1),
        ] {
            let config = read(&format!("order = \"strict\"\n{file}")).expect("it is right");
            assert_eq!((config.pipeline, config.order_window), (pipeline, window), "{file}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_are_told() {
        for (file, words) in [
            ("order_pipeline = \"repeat\"", "but order is none"),
            ("order_window = 9", "but order is none"),
            (
                "order = \"strict\"\norder_pipeline = \"wait\"\norder_window = 9",
                "leave one of them out",
            ),
            (
                "retry_min = \"1m\"\nretry_max = \"30s\"",
                "retry_min is 60s, which is above retry_max",
            ),
            ("source = \"wal\"\non_success = \"archive\"", "which moves no row"),
            ("source = \"messages\"\nlisten = \"outbox\"", "which needs no NOTIFY"),
        ] {
            let problems = read(file).expect_err("it contradicts itself");
            assert!(problems.len() == 1 && problems[0].contains(words), "{file}: {problems:?}");
        }
    }

    #[test]
    fn what_mariadb_and_mysql_do_not_have_is_told() {
        let mut config = read("source = \"messages\"").expect("it is right");
        config.listen = Some("outbox".into());
        for url in ["mysql://h/d", "mariadb://h/d"] {
            config.database = url.into();
            let problems = config.problems().join("\n");
            assert!(problems.contains("whose log has none"), "{problems}");
            assert!(problems.contains("which has no NOTIFY"), "{problems}");
        }
    }

    #[test]
    fn a_choice_is_what_it_says() {
        let config = read("source = \"wal\"\non_success = \"delete\"\non_dead = \"skip\"\n");
        let config = config.expect("it is right");
        let (slot, publication) = ("millrace_relay".to_owned(), "millrace_relay".to_owned());
        assert_eq!(config.source, Source::Wal { slot, publication });
        assert!(config.has_default_slot);
        assert_eq!((config.on_success, config.on_dead), (OnSuccess::Delete, OnDead::Skip));
    }
}
