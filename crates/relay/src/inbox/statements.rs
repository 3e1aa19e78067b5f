//! The statements of an inbox in PostgreSQL. Names are quoted; values are parameters.

use crate::mapping::TableName;
use crate::sql::quoted;

/// SQL for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statements {
    /// Makes the table and its index; safe to repeat, and by two at the same time.
    pub install: String,
    /// Stores a batch in one statement, which is its own transaction: `$1` the consumer, `$2` to `$8` a
    /// column each. Whatever is there already stays as it is.
    pub store: String,
}

impl Statements {
    pub fn new(table: &TableName) -> Self {
        let name = table.quoted();
        // PostgreSQL cuts names at 63 bytes: the part that tells what it is for must stay.
        let short = &table.name[..table.name.floor_char_boundary(50)];
        let index = quoted(&format!("{short}_waiting"));
        let install = format!(
            "BEGIN;
SELECT pg_advisory_xact_lock(777340106);
CREATE TABLE IF NOT EXISTS {name} (
    seq              bigint GENERATED ALWAYS AS IDENTITY,
    consumer         text NOT NULL,
    message_id       text NOT NULL,
    key              text,
    type             text,
    headers          jsonb,
    properties       jsonb,
    payload          bytea NOT NULL,
    received_on_utc  timestamptz NOT NULL DEFAULT now(),
    processed_on_utc timestamptz,
    error            text,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX IF NOT EXISTS {index} ON {name} (consumer, seq) WHERE processed_on_utc IS NULL;
COMMIT;"
        );
        // The numbers of `seq` are drawn after the sort: in the order of delivery.
        let store = format!(
            "INSERT INTO {name} \
               (consumer, message_id, key, type, headers, properties, payload, error) \
             SELECT $1, r.message_id, r.key, r.type, r.headers::jsonb, r.properties::jsonb, \
               r.payload, r.error \
             FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], \
               $8::text[]) WITH ORDINALITY \
               AS r(message_id, key, type, headers, properties, payload, error, place) \
             ORDER BY r.place \
             ON CONFLICT (consumer, message_id) DO NOTHING"
        );
        Self { install, store }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_wherever_they_stand() {
        let table = TableName { schema: Some("my \"schema\"".into()), name: "In Box".into() };
        let statements = Statements::new(&table);
        let name = "\"my \"\"schema\"\"\".\"In Box\"";
        assert_eq!(statements.install.matches(name).count(), 2);
        assert!(statements.install.contains("\"In Box_waiting\""));
        assert!(statements.store.starts_with(&format!("INSERT INTO {name} ")));
    }

    #[test]
    fn the_table_is_the_one_that_the_documentation_shows() {
        let shown = include_str!("../../../../docs/inbox.md");
        let table = TableName { schema: None, name: "inbox_messages".into() };
        let install =
            Statements::new(&table).install.replace('"', "").replace("IF NOT EXISTS ", "");
        let lines =
            install.lines().filter(|line| line.starts_with("    ") || line.starts_with("CREATE"));
        for line in lines {
            assert!(shown.contains(line), "docs/inbox.md does not show: {line}");
        }
        assert!(shown.contains("PRIMARY KEY (consumer, message_id)"));
    }
}
