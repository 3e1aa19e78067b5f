//! Range partitions by time: days or months in UTC, a default one for what fits nowhere.
//!
//! Old partitions are dropped by `purge --drop-partitions`, which costs nothing, however many rows they hold.

use super::index::name_with;
use super::{Found, Plan, Wanted};
use crate::admin::finding::Finding;
use crate::admin::shape::Shape;
use crate::mapping::TableName;
use crate::sql::quoted;
use crate::timestamp::{days, seconds};

const DAY_SECONDS: i64 = 86_400;

/// How long a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    Day,
    Month,
}

/// Partitions that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    pub every: Every,
    /// How many are made beyond the current one.
    pub ahead: u32,
}

/// One partition that ought to be there: `from` belongs to it, `to` does not (days since 1970).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    suffix: String,
    from: i64,
    to: i64,
}

pub(super) fn plan(wanted: &Wanted, found: &Found, table: &TableName, plan: &mut Plan) {
    let Some(partitions) = wanted.partitions else { return };
    let Some(occurred) = &wanted.config.mapping.occurred else {
        plan.tell(Finding::fail(
            "partitions",
            "the mapping names no column with the time of a row",
            "Partitions are ranges of time: name it (--occurred-column)",
        ));
        return;
    };
    if let Some(shape) = &found.table {
        let wanted_key = format!("RANGE ({})", plain_or_quoted(occurred));
        if shape.partition_key.as_deref() != Some(&wanted_key) {
            plan.tell(Finding::fail(
                "partitions",
                match &shape.partition_key {
                    None => format!("{} is there and is not partitioned", shape.label()),
                    Some(key) => format!("{} is partitioned by {key}, not by {wanted_key}", shape.label()),
                },
                "A table cannot be turned into a partitioned one: make a new table (--table), let the application \
                 write to it, and drop the old one when it is empty",
            ));
            return;
        }
    }
    let there = found.table.as_ref().map_or_else(Vec::new, ranges);
    for span in spans(partitions, found.server.now_seconds) {
        let overlaps =
            |&(from, to): &(i64, i64)| from < span.to * DAY_SECONDS && span.from * DAY_SECONDS < to;
        if !there.iter().any(overlaps) {
            plan.step("a partition", create(table, &span));
        }
    }
    let has_default = found.table.as_ref().is_some_and(|shape| {
        shape.leaves.iter().any(|leaf| leaf.bound.as_deref() == Some("DEFAULT"))
    });
    if !has_default {
        let name =
            TableName { schema: table.schema.clone(), name: name_with(&table.name, "_default") };
        let sql = format!("CREATE TABLE {} PARTITION OF {} DEFAULT", name.quoted(), table.quoted());
        plan.step("the partition for rows of any other time: no INSERT fails", sql);
    }
}

fn create(table: &TableName, span: &Span) -> String {
    let name =
        TableName { schema: table.schema.clone(), name: name_with(&table.name, &span.suffix) };
    let at = |day: i64| {
        let (year, month, day) = civil(day);
        format!("'{year:04}-{month:02}-{day:02} 00:00:00+00'")
    };
    let (from, to) = (at(span.from), at(span.to));
    format!(
        "CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({from}) TO ({to})",
        name.quoted(),
        table.quoted()
    )
}

fn spans(partitions: Partitions, now_seconds: i64) -> Vec<Span> {
    let today = now_seconds.div_euclid(DAY_SECONDS);
    let ahead = i64::from(partitions.ahead);
    match partitions.every {
        Every::Day => (today..=today + ahead)
            .map(|from| {
                let (year, month, day) = civil(from);
                Span { suffix: format!("_p{year:04}{month:02}{day:02}"), from, to: from + 1 }
            })
            .collect(),
        Every::Month => {
            let (year, month, _) = civil(today);
            let first = year * 12 + month - 1;
            let start = |months: i64| days(months.div_euclid(12), months.rem_euclid(12) + 1, 1);
            (first..=first + ahead)
                .map(|months| Span {
                    suffix: format!(
                        "_p{:04}{:02}",
                        months.div_euclid(12),
                        months.rem_euclid(12) + 1
                    ),
                    from: start(months),
                    to: start(months + 1),
                })
                .collect()
        }
    }
}

/// Ranges of the partitions that are there, in seconds since 1970; the session's zone is UTC.
fn ranges(shape: &Shape) -> Vec<(i64, i64)> {
    shape.leaves.iter().filter_map(|leaf| range(leaf.bound.as_deref()?)).collect()
}

/// `FOR VALUES FROM ('…') TO ('…')`, and MINVALUE or MAXVALUE for an end that is open.
pub(crate) fn range(bound: &str) -> Option<(i64, i64)> {
    let (from, to) = bound.strip_prefix("FOR VALUES FROM (")?.split_once(") TO (")?;
    let end = |text: &str, open: &str, value: i64| match text {
        text if text == open => Some(value),
        text => i64::try_from(seconds(text.trim_matches('\''))?).ok(),
    };
    Some((end(from, "MINVALUE", i64::MIN)?, end(to.strip_suffix(')')?, "MAXVALUE", i64::MAX)?))
}

/// Year, month and day of a day since 1970: the inverse of [`days`].
fn civil(day: i64) -> (i64, i64, i64) {
    // In eras of 400 years that begin on a first of March.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// A name as PostgreSQL prints it: in quotes only where it needs them.
fn plain_or_quoted(name: &str) -> String {
    let is_plain = name
        .chars()
        .enumerate()
        .all(|(index, c)| c.is_ascii_lowercase() || c == '_' || (index > 0 && c.is_ascii_digit()));
    if is_plain { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_months_follow_each_other_without_a_gap() {
        // 2026-12-30 13:00 UTC.
        let now = 1_798_635_600;
        let spans_of = |every, ahead| spans(Partitions { every, ahead }, now);
        let of_days = spans_of(Every::Day, 3);
        let names: Vec<&str> = of_days.iter().map(|span| span.suffix.as_str()).collect();
        assert_eq!(names, ["_p20261230", "_p20261231", "_p20270101", "_p20270102"]);
        let of_months = spans_of(Every::Month, 2);
        let names: Vec<&str> = of_months.iter().map(|span| span.suffix.as_str()).collect();
        assert_eq!(names, ["_p202612", "_p202701", "_p202702"]);
        for spans in [of_days, of_months] {
            assert!(spans.windows(2).all(|pair| pair[0].to == pair[1].from), "{spans:?}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_found_again() {
        for day in 0..146_097 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }

    #[test]
    fn a_bound_is_read_as_it_is_printed() {
        let bound = "FOR VALUES FROM ('2026-11-21 00:00:00+00') TO (MAXVALUE)";
        assert_eq!(range(bound), Some((1_795_219_200, i64::MAX)));
        assert_eq!(range("DEFAULT"), None);
    }

    #[test]
    fn a_long_name_is_cut_before_its_suffix() {
        let name = name_with(&"ä".repeat(40), "_p20261121");
        assert!(name.len() <= 63 && name.ends_with("ä_p20261121"), "{name}");
    }
}
