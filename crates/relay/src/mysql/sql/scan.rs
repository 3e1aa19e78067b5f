//! The first reading of the table, before the binlog is read: page by page, in order, under one snapshot.

use super::{Statements, quoted};
use crate::mysql::shape::{Column, Kind};

impl Statements {
    /// The columns that put rows in the order of the reading, the id last. The order columns are left out where a page could
    /// not go on behind their values: NULL, or a kind that is compared otherwise than it is sorted.
    pub(crate) fn scan_order(&self) -> Vec<String> {
        let mapping = &self.config.mapping;
        let is_safe = |column: &Column| {
            let kind = column.type_text.to_lowercase();
            let is_listed = kind.starts_with("enum") || kind.starts_with("set");
            !column.is_nullable
                && !is_listed
                && matches!(column.kind, Kind::Integer | Kind::Time | Kind::Text | Kind::Bytes)
        };
        let order = mapping.order_by.iter().filter(|name| !name.eq_ignore_ascii_case(&mapping.id));
        let mut columns: Vec<String> = order.cloned().collect();
        if !columns.iter().all(|name| self.shape.column(name).is_some_and(is_safe)) {
            columns.clear();
        }
        columns.push(mapping.id.clone());
        columns
    }

    /// Reads a page: the layout's columns, then those of the order as they are. `is_first`: from the beginning, else behind
    /// the values that are the parameters (the first of them twice). `since`: microseconds since 2000.
    pub(crate) fn scan(&self, is_first: bool, since: Option<i64>, limit: usize) -> String {
        let order: Vec<String> =
            self.scan_order().iter().map(|name| format!("o.{}", quoted(name))).collect();
        let list = order.join(", ");
        let mut sql = format!(
            "SELECT {}, {list} FROM {} o WHERE {}",
            self.columns(),
            self.table(),
            self.pending()
        );
        let occurred = self.config.mapping.occurred.as_deref();
        if let (Some(since), Some(occurred)) = (since, occurred)
            && self.kind(occurred) == Kind::Time
        {
            let name = quoted(occurred);
            sql += &format!(
                " AND (o.{name} IS NULL OR o.{name} >= TIMESTAMP '2000-01-01 00:00:00' + INTERVAL {since} MICROSECOND)"
            );
        }
        if !is_first {
            let places = vec!["?"; order.len()].join(", ");
            // The first bound lets an index find the page; the second is exact.
            sql += &format!(" AND {} >= ? AND ({list}) > ({places})", order[0]);
        }
        sql + &format!(" ORDER BY {list} LIMIT {limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::mapping::{Mapping, Preset, TableName};
    use crate::mysql::shape::{Index, Shape};

    fn statements(is_nullable: bool) -> Statements {
        let column = |name: &str, kind, type_text: &str, is_nullable| Column {
            name: name.into(),
            kind,
            type_text: type_text.into(),
            is_nullable,
            is_generated: false,
            is_counted: false,
            charset: None,
        };
        let shape = Shape {
            name: TableName { schema: Some("shop".into()), name: "outbox_messages".into() },
            engine: "InnoDB".into(),
            rows: 0,
            columns: vec![
                column("id", Kind::Text, "char(36)", false),
                column("occurred_on_utc", Kind::Time, "datetime(6)", is_nullable),
            ],
            indexes: vec![Index {
                name: "PRIMARY".into(),
                is_unique: true,
                columns: vec!["id".into()],
            }],
        };
        let broker = "amqp://localhost".parse().expect("it is a URL");
        let config = Config::new("mysql://h/d", broker, Mapping::preset(Preset::OutboxMessages));
        Statements::new(&config, &shape).expect("it has an id")
    }

    #[test]
    fn a_page_goes_on_behind_the_last_and_only_as_far_back_as_was_asked() {
        let sql = statements(false).scan(false, Some(7), 10);
        assert!(sql.contains("(o.`occurred_on_utc`, o.`id`) > (?, ?) ORDER BY"), "{sql}");
        assert!(
            sql.contains("o.`occurred_on_utc` >= ? AND") && sql.contains("INTERVAL 7 MICROSECOND"),
            "{sql}"
        );
        assert!(!statements(false).scan(true, None, 10).contains('?'));
    }

    #[test]
    fn an_order_of_values_that_may_be_null_is_left_out() {
        assert_eq!(statements(true).scan_order(), ["id"]);
    }
}
