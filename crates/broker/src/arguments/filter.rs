//! Filters as clients write them: `orders.*.eu, refunds.#` on routing keys, `header:region=eu|us` on a header, or a table
//! where names, values or patterns hold such signs themselves.

use machine::{Arguments, Filter, Value};

/// What a table says instead of a text.
const KEY: &str = "routing-key";
const HEADER: &str = "header";
const VALUE: &str = "value";

/// Why it is no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterProblem {
    /// Neither patterns nor a header with values.
    Form,
    /// More than `machine::limits` allow.
    TooLarge,
}

/// The filter that a text means.
///
/// # Errors
/// It means none.
pub fn from_text(text: &str) -> Result<Filter, FilterProblem> {
    let filter = match text.strip_prefix("header:") {
        Some(header) => {
            let (name, values) = header.split_once('=').ok_or(FilterProblem::Form)?;
            let values = values.split('|').map(str::to_owned).collect();
            Filter::Header { name: name.to_owned(), values }
        }
        None => {
            let patterns = text.split(|c: char| c == ',' || c.is_whitespace());
            Filter::Keys(patterns.filter(|it| !it.is_empty()).map(str::to_owned).collect())
        }
    };
    judged(filter)
}

/// The filter that an argument means.
pub(super) fn of(value: &Value) -> Result<Filter, FilterProblem> {
    match value {
        Value::Table(table) => judged(from_table(table).ok_or(FilterProblem::Form)?),
        _ => from_text(value.text().ok_or(FilterProblem::Form)?),
    }
}

fn from_table(table: &Arguments) -> Option<Filter> {
    let knows = |name: &str| [KEY, HEADER, VALUE].contains(&name);
    if !table.0.iter().all(|(name, _)| knows(name)) {
        return None;
    }
    let header = table.find(HEADER);
    match (table.find(KEY), header, table.find(VALUE)) {
        (Some(keys), None, None) => Some(Filter::Keys(texts(keys)?)),
        (None, Some(name), Some(values)) => {
            Some(Filter::Header { name: name.text()?.to_owned(), values: texts(values)? })
        }
        _ => None,
    }
}

/// A text, or several.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(values) => {
            values.iter().map(|value| value.text().map(str::to_owned)).collect()
        }
        _ => Some(vec![value.text()?.to_owned()]),
    }
}

fn judged(filter: Filter) -> Result<Filter, FilterProblem> {
    let (has_name, is_empty) = match &filter {
        Filter::Keys(keys) => (true, keys.is_empty()),
        Filter::Header { name, values } => (!name.is_empty(), values.is_empty()),
    };
    if is_empty || !has_name {
        return Err(FilterProblem::Form);
    }
    if filter.is_within_limits() { Ok(filter) } else { Err(FilterProblem::TooLarge) }
}

#[cfg(test)]
mod tests {
    use amqp::{FieldTable, Properties};
    use bytes::BytesMut;
    use machine::Matcher;
    use machine::limits::{FILTER_BYTES_MAX, FILTER_WORDS_MAX};

    use super::*;
    use crate::arguments::samples::text;

    fn keys(keys: &[&str]) -> Filter {
        Filter::Keys(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    fn header(name: &str, values: &[&str]) -> Filter {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Filter::Header { name: name.to_owned(), values }
    }

    fn table(fields: &[(&str, Value)]) -> Value {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Table(Arguments(fields.collect()))
    }

    #[test]
    fn a_text_or_a_table_means_patterns_or_values_of_a_header() {
        let several = Value::Array(vec![text("a b"), text("c|d")]);
        for (value, filter) in [
            (text("orders.*.eu, refunds.#"), keys(&["orders.*.eu", "refunds.#"])),
            (text(" a\tb,,c "), keys(&["a", "b", "c"])),
            (text("header:region=eu|us"), header("region", &["eu", "us"])),
            (text("header:region="), header("region", &[""])),
            (text("header:a=b=c"), header("a", &["b=c"])),
            (table(&[("routing-key", several.clone())]), keys(&["a b", "c|d"])),
            (table(&[("header", text("x=y")), ("value", several)]), header("x=y", &["a b", "c|d"])),
        ] {
            assert_eq!(of(&value), Ok(filter), "{value:?}");
        }
    }

    #[test]
    fn what_says_nothing_or_too_much_is_no_filter() {
        let many = "a ".repeat(FILTER_WORDS_MAX + 1);
        let long = "a".repeat(FILTER_BYTES_MAX + 1);
        let (form, too_large) = (FilterProblem::Form, FilterProblem::TooLarge);
        for (value, problem) in [
            (text(""), form),
            (text(" , "), form),
            (text("header:region"), form),
            (text("header:=eu"), form),
            (Value::I32(1), form),
            (table(&[]), form),
            (table(&[("header", text("region"))]), form),
            (table(&[("routing-key", text("a")), ("colour", text("red"))]), form),
            (table(&[("routing-key", Value::Array(vec![Value::I32(1)]))]), form),
            (text(&many), too_large),
            (text(&long), too_large),
        ] {
            assert_eq!(of(&value), Err(problem), "{value:?}");
        }
    }

    #[test]
    fn a_filter_reads_the_heads_that_are_stored() {
        let mut headers = FieldTable::new();
        headers.insert("first", amqp::FieldValue::F64(0.5));
        headers.insert("region", amqp::FieldValue::LongStr(b"eu".to_vec()));
        let mut raw = BytesMut::new();
        headers.encode(&mut raw);
        let headers = amqp::TableRef::decode(&raw).unwrap().0;
        let properties = Properties {
            content_type: Some("text/plain"),
            headers: Some(headers),
            message_id: Some("seven"),
            ..Properties::default()
        };
        let mut head = BytesMut::new();
        crate::stored::write_head("ex", "orders.new.eu", &properties, &mut head);
        for (filter, is_wanted) in [
            ("orders.#", true),
            ("orders.*", false),
            ("header:region=us|eu", true),
            ("header:region=us", false),
            ("header:none=eu", false),
        ] {
            let mut matcher = Matcher::new(&from_text(filter).unwrap());
            assert_eq!(matcher.matches(&head), is_wanted, "{filter}");
        }
    }
}
