//! Options that commands of the relay share. Each can stand in a configuration file under its name with `_` for `-`;
//! a flag or an environment variable wins over the file.

use std::path::{Path, PathBuf};

use client::Url;
use relay::{HeaderColumn, Mapping, Preset, Template};
use serde::Deserialize;

/// Options as they are written, flags and file alike.
macro_rules! options {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(clap::Args, Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: Option<$kind>,)*
        }

        impl $name {
            /// These, and what `file` says where they are silent.
            pub(crate) fn or(self, file: Self) -> Self {
                Self { $($field: self.$field.or(file.$field),)* }
            }
        }
    };
}

options! {
    /// The database and the table.
    Options {
        /// The database: postgres://user:password@host:5432/name?sslmode=verify-full&sslrootcert=FILE
        #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
        database: String,
        /// The broker: amqp://user:password@host:port/vhost, or amqps:// with cacertfile=FILE
        #[arg(long, env = "AMQP_URL", value_name = "URL", hide_env_values = true)]
        url: String,
        /// A file with the database's URL and nothing else, such as a secret that is mounted
        #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE")]
        database_file: PathBuf,
        /// A file with the broker's URL and nothing else
        #[arg(long, env = "AMQP_URL_FILE", value_name = "FILE")]
        url_file: PathBuf,
        /// Columns that are known: outbox_messages, debezium [default: outbox_messages]
        #[arg(long, value_name = "NAME")]
        preset: String,
        /// The outbox table, with its schema if need be [default: the preset's]
        #[arg(long, value_name = "TABLE")]
        table: String,
        /// Column that is unique; it becomes the message-id
        #[arg(long, value_name = "COLUMN")]
        id_column: String,
        /// Column of the body: json, jsonb, text or bytea
        #[arg(long, value_name = "COLUMN")]
        payload_column: String,
        /// Column of the property `type`; none: no such property
        #[arg(long, value_name = "COLUMN")]
        type_column: String,
        /// Column of the property `timestamp`; none
        #[arg(long, value_name = "COLUMN")]
        occurred_column: String,
        /// Columns that rows are ordered by, with commas between; none
        #[arg(long, value_name = "COLUMNS")]
        order_by: String,
        /// Column that is NULL until a row is published; none
        #[arg(long, value_name = "COLUMN")]
        processed_column: String,
        /// Value of the processed column in a published row: true, sent [default: the time]
        #[arg(long, value_name = "VALUE")]
        processed_value: String,
        /// Value of the processed column in a dead row: failed [default: with --processed-value, it stays as it is]
        #[arg(long, value_name = "VALUE")]
        dead_value: String,
        /// Which rows wait, as an SQL condition: NOT sent, or status = 'pending' [default: the processed column is NULL]
        #[arg(long, value_name = "SQL")]
        pending_where: String,
        /// Column for the error of a row that is dead; none
        #[arg(long, value_name = "COLUMN")]
        error_column: String,
        /// Column with a JSON object: the headers
        #[arg(long, value_name = "COLUMN")]
        headers_column: String,
        /// Columns that are headers, with commas between: tenant, trace_id=traceparent; none
        #[arg(long, value_name = "COLUMNS")]
        header_columns: String,
        /// Column of the property correlation-id
        #[arg(long, value_name = "COLUMN")]
        correlation_id_column: String,
        /// Column of the property content-type; where it is NULL, --content-type
        #[arg(long, value_name = "COLUMN")]
        content_type_column: String,
        /// Column of the property priority: 0 to 255
        #[arg(long, value_name = "COLUMN")]
        priority_column: String,
        /// Column of the property expiration: milliseconds
        #[arg(long, value_name = "COLUMN")]
        expiration_column: String,
        /// Column whose value keeps the order of its rows, under --order key
        #[arg(long, value_name = "COLUMN")]
        key_column: String,
        /// Exchange, as a template over columns: events, or outbox.{tenant} [default: the default exchange]
        #[arg(long, value_name = "TEMPLATE")]
        exchange: String,
        /// Routing key, as a template over columns [default: the preset's, {type}]
        #[arg(long, value_name = "TEMPLATE")]
        routing_key: String,
        /// Property content-type [default: application/json]
        #[arg(long, value_name = "TYPE")]
        content_type: String,
        /// Where rows come from: poll, wal, or messages [default: poll]
        #[arg(long, value_name = "SOURCE")]
        source: String,
        /// Replication slot, for wal and messages; of the server, not of a database [default: millrace_relay_DATABASE]
        #[arg(long, value_name = "NAME")]
        slot: String,
        /// Publication, for wal and messages [default: millrace_relay]
        #[arg(long, value_name = "NAME")]
        publication: String,
        /// Prefix of pg_logical_emit_message, for messages [default: outbox]
        #[arg(long, value_name = "TEXT")]
        prefix: String,
        /// What happens to a published row: update, delete or archive [default: update if there is a processed column]
        #[arg(long, value_name = "WHAT")]
        on_success: String,
        /// What must not overtake what: none, key or strict [default: none]
        #[arg(long, value_name = "ORDER")]
        order: String,
        /// What a dead row means for the rest of its key: block or skip [default: block]
        #[arg(long, value_name = "WHAT")]
        on_dead: String,
        /// Connections that drain at the same time, 1 to 64 [default: 4]
        #[arg(long, value_name = "N")]
        workers: u32,
        /// Lanes that keys are spread over, a power of two [default: 64]
        #[arg(long, value_name = "N")]
        lanes: u32,
        /// Unconfirmed messages of one key; more than 1 lets what follows a failed message overtake it [default: 1]
        #[arg(long, value_name = "N")]
        order_window: u32,
        /// Rows of one batch, 1 to 10,000 [default: 1000]
        #[arg(long, value_name = "N")]
        batch: u32,
        /// Unconfirmed messages of one worker [default: 4096]
        #[arg(long, value_name = "N")]
        window: u32,
        /// How long a batch may hold its transaction: 100ms to 60s [default: 5s]
        #[arg(long, value_name = "TIME")]
        batch_deadline: String,
        /// Shortest wait while there is nothing to do [default: 10ms]
        #[arg(long, value_name = "TIME")]
        poll_min: String,
        /// Longest wait while there is nothing to do [default: 500ms]
        #[arg(long, value_name = "TIME")]
        poll_max: String,
        /// LISTEN on this channel, and look at once when somebody notifies
        #[arg(long, value_name = "CHANNEL")]
        listen: String,
        /// Attempts before a message is dead [default: 20]
        #[arg(long, value_name = "N")]
        max_attempts: u32,
        /// Longest wait before the second attempt; it doubles [default: 2s]
        #[arg(long, value_name = "TIME")]
        retry_min: String,
        /// Longest wait between attempts [default: 10m]
        #[arg(long, value_name = "TIME")]
        retry_max: String,
        /// Largest body in bytes; a larger one is dead at once [default: 16777216]
        #[arg(long, value_name = "BYTES")]
        body_bytes_max: usize,
        // Options of `run` alone, which are here for the file: other commands pass them over.
        #[arg(skip)]
        metrics: String,
        #[arg(skip)]
        report_every: String,
        #[arg(skip)]
        json: bool,
        #[arg(skip)]
        log: String,
        #[arg(skip)]
        log_format: String,
        #[arg(skip)]
        unsafe_no_confirms: bool,
    }
}

impl Options {
    /// With the file's settings where flags and environment are silent.
    ///
    /// # Errors
    /// The file cannot be read, or has a wrong key or value: with its place.
    pub(crate) fn with_file(self, path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(self) };
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{shown}: cannot be read: {error}"))?;
        let file: Self = toml::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        Ok(self.or(file))
    }

    /// The database's URL.
    ///
    /// # Errors
    /// It was not given.
    pub(crate) fn database(&self) -> Result<String, String> {
        secret(&self.database, &self.database_file)?.ok_or_else(|| {
            "no database is named: --database postgres://user@host/name, or DATABASE_URL".into()
        })
    }

    /// The table and its columns.
    ///
    /// # Errors
    /// Every name or template that is wrong.
    pub(crate) fn mapping(&self) -> Result<Mapping, Vec<String>> {
        let mut problems = Vec::new();
        let preset = parsed(&self.preset, Preset::OutboxMessages, "--preset", &mut problems);
        let mut mapping = Mapping::preset(preset);
        mapping.table = parsed(&self.table, mapping.table, "--table", &mut problems);
        for (text, column) in [
            (&self.id_column, &mut mapping.id),
            (&self.payload_column, &mut mapping.payload),
            (&self.content_type, &mut mapping.content_type),
        ] {
            if let Some(text) = text {
                column.clone_from(text);
            }
        }
        for (text, column) in [
            (&self.type_column, &mut mapping.message_type),
            (&self.occurred_column, &mut mapping.occurred),
            (&self.processed_column, &mut mapping.processed),
            (&self.error_column, &mut mapping.error),
            (&self.headers_column, &mut mapping.headers),
            (&self.correlation_id_column, &mut mapping.correlation_id),
            (&self.content_type_column, &mut mapping.content_type_column),
            (&self.priority_column, &mut mapping.priority),
            (&self.expiration_column, &mut mapping.expiration),
            (&self.key_column, &mut mapping.key),
        ] {
            if let Some(text) = text {
                *column = (text != "none" && !text.is_empty()).then(|| text.clone());
            }
        }
        for (text, setting) in [
            (&self.processed_value, &mut mapping.processed_value),
            (&self.dead_value, &mut mapping.dead_value),
            (&self.pending_where, &mut mapping.pending_where),
        ] {
            setting.clone_from(text);
        }
        if let Some(text) = &self.order_by {
            mapping.order_by = list(text).map(str::to_owned).collect();
        }
        if let Some(text) = &self.header_columns {
            let mut keep = |error: String| problems.push(format!("--header-columns: {error}"));
            let headers = list(text).map(str::parse::<HeaderColumn>);
            mapping.header_columns =
                headers.filter_map(|header| header.map_err(&mut keep).ok()).collect();
        }
        let template =
            |text: &Option<String>, other: Template, flag, problems: &mut Vec<String>| {
                parsed(text, other, flag, problems)
            };
        mapping.exchange = template(&self.exchange, mapping.exchange, "--exchange", &mut problems);
        mapping.routing_key =
            template(&self.routing_key, mapping.routing_key, "--routing-key", &mut problems);
        if problems.is_empty() { Ok(mapping) } else { Err(problems) }
    }

    /// Everything a running relay needs.
    ///
    /// # Errors
    /// All that is wrong, each in a sentence.
    pub(crate) fn config(&self) -> Result<relay::Config, Vec<String>> {
        use relay::{OnDead, OnSuccess, Order, Source};
        let mut problems = Vec::new();
        let mut keep = |result: Result<String, String>| match result {
            Ok(text) => text,
            Err(problem) => {
                problems.push(problem);
                String::new()
            }
        };
        let database = keep(self.database());
        let mapping = self.mapping().unwrap_or_else(|more| {
            problems.extend(more);
            Mapping::preset(Preset::OutboxMessages)
        });
        let local: Url = "amqp://guest:guest@localhost:5672/%2F".parse().expect("it is a URL");
        let url = secret(&self.url, &self.url_file);
        let url = url.map_err(|problem| problems.push(problem)).unwrap_or_default();
        let broker = parsed(&url, local, "--url", &mut problems);
        let mut config = relay::Config::new(database, broker, mapping);
        let name =
            |text: &Option<String>, other: &str| text.clone().unwrap_or_else(|| other.into());
        let slot = name(&self.slot, "millrace_relay");
        config.has_default_slot = self.slot.is_none();
        let publication = name(&self.publication, "millrace_relay");
        let prefix = name(&self.prefix, "outbox");
        let sources = [
            ("poll", Source::Poll),
            ("wal", Source::Wal { slot: slot.clone(), publication: publication.clone() }),
            ("messages", Source::Messages { slot, publication, prefix }),
        ];
        one_of(&self.source, "--source", &sources, &mut config.source, &mut problems);
        let ways = [
            ("update", OnSuccess::Update),
            ("delete", OnSuccess::Delete),
            ("archive", OnSuccess::Archive),
        ];
        one_of(&self.on_success, "--on-success", &ways, &mut config.on_success, &mut problems);
        let orders = [("none", Order::None), ("key", Order::Key), ("strict", Order::Strict)];
        one_of(&self.order, "--order", &orders, &mut config.order, &mut problems);
        let ways = [("block", OnDead::Block), ("skip", OnDead::Skip)];
        one_of(&self.on_dead, "--on-dead", &ways, &mut config.on_dead, &mut problems);
        for (value, setting) in [
            (self.workers, &mut config.workers),
            (self.lanes, &mut config.lanes),
            (self.order_window, &mut config.order_window),
            (self.batch, &mut config.batch),
            (self.window, &mut config.window),
            (self.max_attempts, &mut config.attempts.max),
        ] {
            *setting = value.unwrap_or(*setting);
        }
        for (text, flag, setting) in [
            (&self.batch_deadline, "--batch-deadline", &mut config.batch_deadline),
            (&self.poll_min, "--poll-min", &mut config.poll_min),
            (&self.poll_max, "--poll-max", &mut config.poll_max),
            (&self.retry_min, "--retry-min", &mut config.attempts.backoff.first),
            (&self.retry_max, "--retry-max", &mut config.attempts.backoff.longest),
        ] {
            match text.as_deref().map(service::duration) {
                None => (),
                Some(Ok(time)) => *setting = time,
                Some(Err(why)) => problems.push(format!("{flag}: {why}")),
            }
        }
        config.body_bytes_max = self.body_bytes_max.unwrap_or(config.body_bytes_max);
        config.listen.clone_from(&self.listen);
        problems.extend(config.problems());
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// The configuration file's flag.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct File {
    /// A configuration file (TOML): any of the other options, with `_` for `-`
    #[arg(long, value_name = "FILE", env = "MILLRACE_RELAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// A URL, or what stands in the file that is named instead.
///
/// # Errors
/// The file cannot be read.
pub(super) fn secret(
    url: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, String> {
    let (None, Some(path)) = (url, file) else { return Ok(url.clone()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}

/// Names with commas between; `none` is none.
fn list(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.trim() == "none" { "" } else { text };
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &Option<String>,
    other: T,
    flag: &str,
    problems: &mut Vec<String>,
) -> T {
    match text.as_deref().map(str::parse) {
        None => other,
        Some(Ok(value)) => value,
        Some(Err(error)) => {
            problems.push(format!("{flag}: {error}"));
            other
        }
    }
}

fn one_of<T: Clone>(
    text: &Option<String>,
    flag: &str,
    all: &[(&str, T)],
    setting: &mut T,
    problems: &mut Vec<String>,
) {
    let Some(text) = text else { return };
    match all.iter().find(|(name, _)| name == text) {
        Some((_, value)) => *setting = value.clone(),
        None => {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            problems.push(format!("{flag} is `{text}`: it is one of {}", names.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_together() {
        let options = Options {
            source: Some("kafka".into()),
            order: Some("sorted".into()),
            workers: Some(0),
            exchange: Some("{".into()),
            ..Options::default()
        };
        let problems = options.config().expect_err("nothing is right");
        let all = problems.join("\n");
        for word in ["--source", "--order", "workers is 0", "--exchange", "no database"] {
            assert!(all.contains(word), "{word} is not in {all}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test writes the file that is read")]
    fn a_url_may_stand_in_a_file_of_its_own() {
        let path = std::env::temp_dir().join(format!("relay-options-{}", std::process::id()));
        std::fs::write(&path, "postgres://app:secret@db/shop\n").expect("it can be written");
        let options = Options { database_file: Some(path.clone()), ..Options::default() };
        assert_eq!(options.database().as_deref(), Ok("postgres://app:secret@db/shop"));
        let both = Options { database: Some("postgres://db/other".into()), ..options.clone() };
        assert_eq!(both.database().as_deref(), Ok("postgres://db/other"), "what is said itself");
        std::fs::remove_file(&path).expect("it is there");
        assert!(options.database().is_err_and(|why| why.contains("cannot be read")));
    }

    #[test]
    fn the_file_takes_every_setting_that_the_table_of_settings_names() {
        let table = include_str!("../../../../../docs/relay.md");
        let table = table.split("## Settings").nth(1).expect("there is a table of settings");
        let table = table.split("\n## ").next().unwrap_or_default();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let names = rows.flat_map(|names| names.split(", ")).map(|name| name.replace('`', ""));
        let mut count = 0;
        for name in names {
            let key = name.trim().trim_start_matches("--").replace('-', "_");
            let taken = ["\"1s\"", "true", "7"]
                .map(|value| toml::from_str::<Options>(&format!("{key} = {value}")).is_ok());
            assert!(taken.contains(&true), "{key} is not taken");
            count += 1;
        }
        assert!(count > 25, "{count} settings were found");
    }

    #[test]
    fn none_is_no_column_also_where_several_may_stand() {
        let options = Options {
            preset: Some("debezium".into()),
            order_by: Some("none".into()),
            header_columns: Some(" none ".into()),
            ..Options::default()
        };
        let mapping = options.mapping().expect("it is right");
        assert!(mapping.order_by.is_empty() && mapping.header_columns.is_empty());
        let header_columns = Some("tenant, trace = traceparent,".into());
        let mapping = Options { header_columns, ..Options::default() }.mapping();
        let headers = mapping.expect("it is right").header_columns;
        let names: Vec<_> = headers.iter().map(|it| (&*it.column, &*it.header)).collect();
        assert_eq!(names, [("tenant", "tenant"), ("trace", "traceparent")]);
    }

    #[test]
    fn a_file_says_what_flags_do_not_and_a_wrong_key_is_told_with_its_place() {
        let file: Options = toml::from_str("workers = 2\nbatch = 10\n").expect("it is right");
        let flags = Options { workers: Some(3), ..Options::default() };
        let both = flags.or(file);
        assert_eq!((both.workers, both.batch), (Some(3), Some(10)));
        let error = toml::from_str::<Options>("worker = 2\n").expect_err("no such key");
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
