//! Which column of a table is what of a message: presets for known tables, or your own.

use std::fmt;
use std::str::FromStr;

use crate::cloudevents::CloudEvents;
use crate::limits::{NAME_BYTES_MAX, SHORT_STRING_BYTES_MAX};
use crate::template::Template;

/// A table's name with its schema, if one was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<String>,
    pub name: String,
}

impl FromStr for TableName {
    type Err = String;

    /// `table` or `schema.table`, as they are stored (no folding to lower case). Quotes, as SQL has them, may stand
    /// around either: a name with a dot needs them.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a table's name (it reads table or schema.table)");
        let (first, rest) = part(text).ok_or_else(wrong)?;
        let (schema, name) = match rest {
            None => (None, first),
            Some(rest) => match part(rest).ok_or_else(wrong)? {
                (name, None) => (Some(first), name),
                // Without quotes, only the first dot parts: names with more were always taken.
                (_, Some(_)) if !rest.contains('"') => (Some(first), rest.to_owned()),
                (_, Some(_)) => return Err(wrong()),
            },
        };
        let table = Self { schema, name };
        let parts = [table.schema.as_deref().unwrap_or("x"), &table.name];
        // PostgreSQL's identifiers have at most 63 bytes and no zero byte.
        if parts
            .iter()
            .any(|part| part.is_empty() || part.len() > NAME_BYTES_MAX || part.contains('\0'))
        {
            return Err(wrong());
        }
        Ok(table)
    }
}

/// A name at the beginning of `text`, and what follows the dot behind it. None: its quotes do not match.
fn part(text: &str) -> Option<(String, Option<&str>)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        return Some(match text.split_once('.') {
            Some((name, rest)) => (name.to_owned(), Some(rest)),
            None => (text.to_owned(), None),
        });
    };
    let mut name = String::new();
    loop {
        let (before, after) = rest.split_once('"')?;
        name += before;
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None if after.is_empty() => return Some((name, None)),
            None => return Some((name, Some(after.strip_prefix('.')?))),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(out, "{schema}.{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// Columns of an outbox table by their part in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub table: TableName,
    /// Unique; becomes the message-id.
    pub id: String,
    /// The body: json, jsonb, text or bytea.
    pub payload: String,
    /// The property `type`.
    pub message_type: Option<String>,
    /// The property `timestamp`: timestamptz, or seconds since 1970.
    pub occurred: Option<String>,
    /// The order of rows. Empty: any.
    pub order_by: Vec<String>,
    /// NULL until the message is confirmed, if there is no `processed_value`.
    pub processed: Option<String>,
    /// The value of `processed` in a confirmed row: `true`, `sent`. None: the time.
    pub processed_value: Option<String>,
    /// The value of `processed` in a dead row. None: with a `processed_value`, it stays as it is.
    pub dead_value: Option<String>,
    /// Which rows wait to be published, as an SQL condition. None: those whose `processed` is NULL.
    pub pending_where: Option<String>,
    /// Why a message could not be published.
    pub error: Option<String>,
    /// A JSON object: the headers.
    pub headers: Option<String>,
    /// Columns that are headers each, as text.
    pub header_columns: Vec<HeaderColumn>,
    /// The property `correlation-id`.
    pub correlation_id: Option<String>,
    /// The property `content-type`, where it is not NULL.
    pub content_type_column: Option<String>,
    /// The property `priority`: 0 to 255.
    pub priority: Option<String>,
    /// The property `expiration`: milliseconds.
    pub expiration: Option<String>,
    /// Rows of the same key keep their order under `--order key`.
    pub key: Option<String>,
    pub exchange: Template,
    pub routing_key: Template,
    pub content_type: String,
    /// Messages are CloudEvents.
    pub cloudevents: Option<CloudEvents>,
}

/// A column that is a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    pub column: String,
    /// What the header is called.
    pub header: String,
}

impl FromStr for HeaderColumn {
    type Err = String;

    /// `column`, or `column=header` for a header of another name.
    fn from_str(text: &str) -> Result<Self, String> {
        let (column, header) = text.split_once('=').unwrap_or((text, text));
        let (column, header) = (column.trim().to_owned(), header.trim().to_owned());
        if column.is_empty() || header.is_empty() || header.len() > SHORT_STRING_BYTES_MAX {
            return Err(format!("`{text}` is no header: it reads column or column=header"));
        }
        Ok(Self { column, header })
    }
}

/// Tables whose columns are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `outbox_messages(id, type, content, occurred_on_utc, processed_on_utc, error)`.
    OutboxMessages,
    /// Debezium's outbox: `outbox(id, aggregatetype, aggregateid, type, payload)`.
    Debezium,
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "outbox_messages" => Ok(Self::OutboxMessages),
            "debezium" => Ok(Self::Debezium),
            _ => Err(format!("`{text}` is no preset: there are outbox_messages and debezium")),
        }
    }
}

impl Mapping {
    /// The columns of a known table.
    pub fn preset(preset: Preset) -> Self {
        let some = |name: &str| Some(name.to_owned());
        match preset {
            Preset::OutboxMessages => Self {
                table: TableName { schema: None, name: "outbox_messages".into() },
                id: "id".into(),
                payload: "content".into(),
                message_type: some("type"),
                occurred: some("occurred_on_utc"),
                order_by: vec!["occurred_on_utc".into(), "id".into()],
                processed: some("processed_on_utc"),
                processed_value: None,
                dead_value: None,
                pending_where: None,
                error: some("error"),
                headers: None,
                header_columns: Vec::new(),
                correlation_id: None,
                content_type_column: None,
                priority: None,
                expiration: None,
                key: None,
                exchange: Template::default(),
                routing_key: "{type}".parse().expect("it is a template"),
                content_type: "application/json".into(),
                cloudevents: None,
            },
            Preset::Debezium => Self {
                table: TableName { schema: None, name: "outbox".into() },
                id: "id".into(),
                payload: "payload".into(),
                message_type: some("type"),
                occurred: None,
                order_by: Vec::new(),
                processed: None,
                processed_value: None,
                dead_value: None,
                pending_where: None,
                error: None,
                headers: None,
                header_columns: vec![HeaderColumn {
                    column: "aggregateid".into(),
                    header: "aggregateid".into(),
                }],
                correlation_id: None,
                content_type_column: None,
                priority: None,
                expiration: None,
                key: some("aggregateid"),
                exchange: Template::default(),
                routing_key: "outbox.event.{aggregatetype}".parse().expect("it is a template"),
                content_type: "application/json".into(),
                cloudevents: None,
            },
        }
    }

    /// Columns of properties that not every mapping has.
    pub(crate) fn property_columns(&self) -> impl Iterator<Item = &String> {
        let Self { correlation_id, content_type_column, priority, expiration, .. } = self;
        let headers = self.header_columns.iter().map(|header| &header.column);
        [correlation_id, content_type_column, priority, expiration]
            .into_iter()
            .flatten()
            .chain(headers)
    }

    /// What is wrong if a marked row still waits: published rows would be published for ever.
    pub(crate) fn still_waits(&self) -> String {
        let Self { table, processed, processed_value, pending_where, .. } = self;
        format!(
            "a row of {table} that is marked as published ({} = {}) still fits --pending-where ({}), so that it would be \
             published over and over: nothing was marked. Make the two fit",
            processed.as_deref().unwrap_or_default(),
            processed_value.as_deref().unwrap_or("the time"),
            pending_where.as_deref().unwrap_or_default()
        )
    }

    /// The columns to read and what each is for.
    pub fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        layout.id = layout.place(&self.id);
        layout.payload = layout.place(&self.payload);
        layout.message_type = self.message_type.as_deref().map(|name| layout.place(name));
        layout.occurred = self.occurred.as_deref().map(|name| layout.place(name));
        layout.headers = self.headers.as_deref().map(|name| layout.place(name));
        layout.key = self.key.as_deref().map(|name| layout.place(name));
        let place = |layout: &mut Layout, name: &Option<String>| {
            name.as_deref().map(|name| layout.place(name))
        };
        layout.correlation_id = place(&mut layout, &self.correlation_id);
        layout.content_type = place(&mut layout, &self.content_type_column);
        layout.priority = place(&mut layout, &self.priority);
        layout.expiration = place(&mut layout, &self.expiration);
        let headers = self.header_columns.iter();
        layout.header_columns = headers.map(|header| layout.place(&header.column)).collect();
        layout.order_by = self.order_by.iter().map(|name| layout.place(name)).collect();
        let source = self.cloudevents.iter().flat_map(|events| events.source.columns());
        for name in self.exchange.columns().chain(self.routing_key.columns()).chain(source) {
            layout.place(name);
        }
        layout
    }
}

/// Columns in the order they are read, each once, and the place of each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub columns: Vec<String>,
    pub id: usize,
    pub payload: usize,
    pub message_type: Option<usize>,
    pub occurred: Option<usize>,
    pub headers: Option<usize>,
    pub key: Option<usize>,
    pub correlation_id: Option<usize>,
    pub content_type: Option<usize>,
    pub priority: Option<usize>,
    pub expiration: Option<usize>,
    pub header_columns: Vec<usize>,
    pub order_by: Vec<usize>,
}

impl Layout {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.find(name) {
            return place;
        }
        self.columns.push(name.to_owned());
        self.columns.len() - 1
    }

    /// Where the column `name` is.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_with_two_parts_is_read_once() {
        let layout = Mapping::preset(Preset::OutboxMessages).layout();
        assert_eq!(layout.columns, ["id", "content", "type", "occurred_on_utc"]);
        assert_eq!(layout.order_by, [3, 0]);
        let layout = Mapping::preset(Preset::Debezium).layout();
        assert_eq!(layout.columns, ["id", "payload", "type", "aggregateid", "aggregatetype"]);
        assert_eq!(layout.key, Some(3));
    }

    #[test]
    fn a_name_that_postgresql_cannot_have_is_refused() {
        assert!("".parse::<TableName>().is_err());
        assert!("a.".parse::<TableName>().is_err());
        assert!("x".repeat(64).parse::<TableName>().is_err());
        for text in ["\"a", "\"a\"b", "\"\"", "\"a\".\"b\".c", "\"a\".\"b"] {
            assert!(text.parse::<TableName>().is_err(), "{text}");
        }
        let table: TableName = "shop.Outbox".parse().expect("it is one");
        assert_eq!((table.schema.as_deref(), table.name.as_str()), (Some("shop"), "Outbox"));
    }

    #[test]
    fn quotes_around_a_name_are_those_of_sql() {
        let parsed = |text: &str| {
            let table: TableName = text.parse().expect("it is one");
            (table.schema, table.name)
        };
        assert_eq!(parsed("\"Outbox\""), (None, "Outbox".into()));
        assert_eq!(parsed("shop.\"Out.Box\""), (Some("shop".into()), "Out.Box".into()));
        assert_eq!(parsed("\"my shop\".outbox"), (Some("my shop".into()), "outbox".into()));
        assert_eq!(parsed("\"a\"\"b\""), (None, "a\"b".into()));
        assert_eq!(parsed("a.b.c"), (Some("a".into()), "b.c".into()));
    }
}
