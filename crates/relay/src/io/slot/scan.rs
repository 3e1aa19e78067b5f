//! Reads the outbox table itself: once, after a slot was made, for what was committed before it could see.

use tokio_postgres::Client;

use crate::config::Config;
use crate::error::Error;
use crate::io::postgres::database;
use crate::limits::FIRST_ROWS;
use crate::pgoutput::encode_row;
use crate::sql::{Table, quoted};
use crate::stream::Input;

/// Rows read at once at most, when their size is known; bytes of them.
const ROWS: usize = 500;
const BYTES: usize = 4 << 20;

/// A reading of the table. The cursor outlives its transaction: nothing is held open while the broker is slow.
#[derive(Debug)]
pub(super) struct Scan {
    /// How many to read at once, known better with every reading.
    rows: usize,
}

impl Scan {
    /// Begins: rows that are not processed; with `since` (microseconds since 2000), of those only what is newer.
    pub(super) async fn begin(
        client: &Client,
        config: &Config,
        table: &Table,
        since: Option<i64>,
    ) -> Result<Self, Error> {
        let sql = statement(config, table, since);
        client
            .batch_execute(&sql)
            .await
            .map_err(|error| database("reading the outbox table", &error))?;
        Ok(Self { rows: FIRST_ROWS })
    }

    /// The next rows; none: that was all.
    pub(super) async fn next(&mut self, client: &Client) -> Result<Vec<Input>, Error> {
        let sql = format!("FETCH {} FROM millrace_scan", self.rows);
        let failed = |error: tokio_postgres::Error| database("reading the outbox table", &error);
        let rows = client.query(&sql, &[]).await.map_err(failed)?;
        let mut bytes = 0;
        let mut inputs = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut values: Vec<Option<&[u8]>> = Vec::with_capacity(row.len());
            for (index, column) in row.columns().iter().enumerate() {
                let value = match *column.type_() == tokio_postgres::types::Type::BYTEA {
                    true => row.try_get::<_, Option<&[u8]>>(index).map_err(failed)?,
                    false => {
                        row.try_get::<_, Option<&str>>(index).map_err(failed)?.map(str::as_bytes)
                    }
                };
                values.push(value);
            }
            let encoded = encode_row(values);
            bytes += encoded.len();
            inputs.push(Input::Scanned(encoded));
        }
        if let Some(each) = bytes.checked_div(rows.len()) {
            // As the poll's fetch: the next rows may be larger than all so far.
            let most = ROWS.min(8 * rows.len());
            self.rows = (BYTES / each.max(1)).clamp(1, most);
        } else {
            client.batch_execute("CLOSE millrace_scan").await.map_err(failed)?;
        }
        Ok(inputs)
    }
}

fn statement(config: &Config, table: &Table, since: Option<i64>) -> String {
    let mapping = &config.mapping;
    let column = |name: &String| {
        let is_bytea = table.columns.iter().any(|(has, kind)| has == name && kind == "bytea");
        let name = quoted(name);
        match is_bytea {
            true => format!("o.{name}"),
            // As the log has it, by the type's own output: a cast to text trims and spells out.
            false => format!("CASE WHEN o.{name} IS NOT NULL THEN format('%s', o.{name}) END"),
        }
    };
    let columns: Vec<String> = mapping.layout().columns.iter().map(column).collect();
    let mut sql = format!(
        "DECLARE millrace_scan NO SCROLL CURSOR WITH HOLD FOR SELECT {} FROM {} o WHERE true",
        columns.join(", "),
        table.name.quoted()
    );
    if mapping.processed.is_some() || mapping.pending_where.is_some() {
        sql += &format!(" AND {}", mapping.is_pending("o"));
    }
    if let (Some(since), Some(occurred)) = (since, &mapping.occurred) {
        let kind =
            table.columns.iter().find(|(has, _)| has == occurred).map(|(_, kind)| kind.as_str());
        if kind.is_some_and(|kind| kind.starts_with("timestamp")) {
            sql += &format!(
                " AND (o.{0} IS NULL OR o.{0} >= timestamptz '2000-01-01 00:00:00+00' \
                   + {since} * interval '1 microsecond')",
                quoted(occurred)
            );
        }
    }
    if !mapping.order_by.is_empty() {
        let order: Vec<String> =
            mapping.order_by.iter().map(|name| format!("o.{}", quoted(name))).collect();
        sql += &format!(" ORDER BY {}", order.join(", "));
    }
    sql
}

#[cfg(test)]
mod tests {
    use client::Url;

    use super::*;
    use crate::mapping::{Mapping, Preset, TableName};

    #[test]
    fn the_table_is_read_in_its_order_and_only_as_far_back_as_was_asked() {
        let broker: Url = "amqp://localhost".parse().expect("a URL");
        let mapping = Mapping::preset(Preset::OutboxMessages);
        let config = Config::new("postgres://localhost/d", broker, mapping);
        let kinds = [("id", "uuid"), ("occurred_on_utc", "timestamp with time zone")];
        let table = Table {
            name: TableName { schema: Some("public".into()), name: "outbox_messages".into() },
            oid: 1,
            columns: kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec(),
            is_plain: true,
            has_dropped: false,
            is_view: false,
        };
        let all = statement(&config, &table, None);
        assert!(
            all.contains("\"processed_on_utc\" IS NULL ORDER BY o.\"occurred_on_utc\", o.\"id\""),
            "{all}"
        );
        assert!(statement(&config, &table, Some(7)).contains(">= timestamptz"));
    }
}
