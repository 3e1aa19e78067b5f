//! Which column of a table is what of a message: presets for known tables, or your own.

use std::fmt;
use std::str::FromStr;

use crate::template::Template;

/// A table's name with its schema, if one was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<String>,
    pub name: String,
}

impl FromStr for TableName {
    type Err = String;

    /// `table` or `schema.table`, as they are stored (no folding to lower case, no quotes).
    fn from_str(text: &str) -> Result<Self, String> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema.to_owned()), name),
            None => (None, text),
        };
        let table = Self { schema, name: name.to_owned() };
        let parts = [table.schema.as_deref().unwrap_or("x"), &table.name];
        // PostgreSQL's identifiers have at most 63 bytes and no zero byte.
        if parts.iter().any(|part| part.is_empty() || part.len() > 63 || part.contains('\0')) {
            return Err(format!("`{text}` is not a table's name (it reads table or schema.table)"));
        }
        Ok(table)
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
    /// Why a message could not be published.
    pub error: Option<String>,
    /// A JSON object: the headers.
    pub headers: Option<String>,
    /// Rows of the same key keep their order under `--order key`.
    pub key: Option<String>,
    pub exchange: Template,
    pub routing_key: Template,
    pub content_type: String,
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
    /// The value of `processed` in a confirmed row: `true`, `sent`. None: the time.
    pub processed_value: Option<String>,
    /// The value of `processed` in a dead row. None: with a `processed_value`, it stays as it is.
    pub dead_value: Option<String>,
    /// Which rows wait to be published, as an SQL condition. None: those whose `processed` is NULL.
    pub pending_where: Option<String>,
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
                error: some("error"),
                headers: None,
                key: None,
                exchange: Template::default(),
                routing_key: "{type}".parse().expect("it is a template"),
                content_type: "application/json".into(),
            },
            Preset::Debezium => Self {
                table: TableName { schema: None, name: "outbox".into() },
                id: "id".into(),
                payload: "payload".into(),
                message_type: some("type"),
                occurred: None,
                order_by: Vec::new(),
                processed: None,
                error: None,
                headers: None,
                key: some("aggregateid"),
                exchange: Template::default(),
                routing_key: "outbox.event.{aggregatetype}".parse().expect("it is a template"),
                content_type: "application/json".into(),
            },
        }
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
        layout.order_by = self.order_by.iter().map(|name| layout.place(name)).collect();
        for name in self.exchange.columns().chain(self.routing_key.columns()) {
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
                processed_value: None,
                dead_value: None,
                pending_where: None,
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
                processed_value: None,
                dead_value: None,
                pending_where: None,
        assert!("a.".parse::<TableName>().is_err());
        assert!("x".repeat(64).parse::<TableName>().is_err());
        let table: TableName = "shop.Outbox".parse().expect("it is one");
        assert_eq!((table.schema.as_deref(), table.name.as_str()), (Some("shop"), "Outbox"));
    }
}
