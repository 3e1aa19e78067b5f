//! Lists as RabbitMQ gives them: names that match, an order, pages, columns.

use std::cmp::Ordering;

use http::StatusCode;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use crate::asked::Asked;
use crate::limits::{PAGE_SIZE, PAGE_SIZE_MAX, PATTERN_BYTES_MAX, PATTERN_COMPILED_BYTES_MAX};
use crate::reply::{Problem, Reply};

/// RabbitMQ's words for a number that is none, and for a pattern that is none.
const INVALID: &str = "Pagination parameters are invalid";

/// How a list is to be shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// `None`: all on one page, without saying so.
    page: Option<Page>,
    name: Option<Name>,
    /// A column, and the fields inside it.
    sort: Option<Vec<String>>,
    is_reversed: bool,
    /// `None`: all of them.
    columns: Option<Vec<Vec<String>>>,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    number: usize,
    size: usize,
}

impl Page {
    fn can_be(&self) -> bool {
        let Self { number, size } = *self;
        let is_within = number > 0 && (1..=PAGE_SIZE_MAX).contains(&size);
        is_within && number.checked_mul(size).is_some()
    }
}

/// What names must have in them, or match.
#[derive(Clone, Debug)]
enum Name {
    Part(String),
    Pattern(Regex),
}

impl Shape {
    /// What the query says.
    pub(crate) fn of(asked: &Asked) -> Result<Self, Problem> {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        Ok(Self {
            page: page(asked)?,
            name: name(asked)?,
            sort: asked.word("sort").map(path),
            is_reversed: asked.says("sort_reverse"),
            columns: asked.word("columns").map(|columns| columns.split(',').map(path).collect()),
        })
    }

    /// Whether an item with this name is to be shown.
    pub(crate) fn wants(&self, name: &str) -> bool {
        match &self.name {
            None => true,
            // As in RabbitMQ: capitals do not matter.
            Some(Name::Part(part)) => name.to_lowercase().contains(part),
            Some(Name::Pattern(pattern)) => pattern.is_match(name),
        }
    }

    /// What of `count` items in the order of their names, or in the reverse of it, is on the page, before any of them is
    /// looked at. `None`: the order is another, so all are needed.
    pub(crate) fn window(&self, count: usize) -> Option<std::ops::Range<usize>> {
        let sorts_by_name = match &self.sort {
            None => true,
            Some(path) => path.len() == 1 && path[0] == "name",
        };
        (self.page.is_some() && sorts_by_name).then(|| self.place(count))
    }

    /// Whether the order is the reverse.
    pub(crate) fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    /// By which column a page is to be cut out of many items, and whether from the largest on. `None`: all items are on
    /// one page, or in the order of their names.
    pub(crate) fn sorted_page(&self) -> Option<(&[String], bool)> {
        let path = self.sort.as_deref().filter(|_| self.page.is_some())?;
        Some((path, self.is_reversed))
    }

    /// Where the page is among so many items.
    pub(crate) fn place(&self, count: usize) -> std::ops::Range<usize> {
        self.page.map_or(0..count, |page| {
            let start = ((page.number - 1) * page.size).min(count);
            start..(start + page.size).min(count)
        })
    }

    /// The list, of all items that are wanted. `total_count`: those that are there, wanted or not.
    pub(crate) fn reply(&self, mut items: Vec<Value>, total_count: usize) -> Reply {
        self.order(&mut items);
        let filtered_count = items.len();
        let window = self.place(filtered_count);
        let shown = items.drain(window).collect();
        self.reply_with(shown, filtered_count, total_count)
    }

    /// The same of the items of the page alone: see [`Shape::window`].
    pub(crate) fn reply_with(
        &self,
        items: Vec<Value>,
        filtered_count: usize,
        total_count: usize,
    ) -> Reply {
        let items: Vec<Value> = items.into_iter().map(|item| self.columns_of(item)).collect();
        let Some(Page { number, size }) = self.page else { return Reply::of(items.into()) };
        let page_count = filtered_count.div_ceil(size);
        // The first page is always there, if only to say that there are no items.
        if number > page_count.max(1) {
            let reason = format!(
                "Page out of range, page: {number} page size: {size}, len: {filtered_count}"
            );
            let body = json!({ "error": "page_out_of_range", "reason": reason });
            return Reply { status: StatusCode::BAD_REQUEST, body: Some(body), location: None };
        }
        Reply::of(json!({
            "items": items,
            "item_count": items.len(),
            "filtered_count": filtered_count,
            "total_count": total_count,
            "page": number,
            "page_count": page_count,
            "page_size": size,
        }))
    }

    /// One thing, with the columns that are wanted.
    pub(crate) fn columns_of(&self, item: Value) -> Value {
        let (Some(columns), Value::Object(fields)) = (&self.columns, &item) else { return item };
        let mut kept = Map::new();
        for path in columns {
            keep(fields, path, &mut kept);
        }
        Value::Object(kept)
    }

    fn order(&self, items: &mut [Value]) {
        if self.is_reversed {
            items.reverse();
        }
        let Some(path) = &self.sort else { return };
        items.sort_by(|one, other| {
            let [one, other] = [one, other].map(|item| find(item, path).filter(|it| !it.is_null()));
            last_if_none(one, other, self.is_reversed, |one, other| compare(one, other))
        });
    }
}

fn page(asked: &Asked) -> Result<Option<Page>, Problem> {
    let Some(number) = asked.word("page") else { return Ok(None) };
    let whole = |text: &str| text.parse::<i64>().map_err(|_| Problem::bad(INVALID));
    let number = whole(number)?;
    let size = asked.word("page_size").map(whole).transpose()?;
    let wanted_size = size.map_or(Some(PAGE_SIZE), |size| usize::try_from(size).ok());
    let page = usize::try_from(number).ok().zip(wanted_size);
    let page = page.map(|(number, size)| Page { number, size });
    page.filter(Page::can_be).map(Some).ok_or_else(|| {
        let size = size.map_or("undefined".to_owned(), |size| size.to_string());
        Problem::NoPage(format!(
            "Invalid pagination parameters: page number {number}, page size {size}"
        ))
    })
}

fn name(asked: &Asked) -> Result<Option<Name>, Problem> {
    let Some(text) = asked.word("name") else { return Ok(None) };
    if text.len() > PATTERN_BYTES_MAX {
        return Err(Problem::bad(format!("name should have at most {PATTERN_BYTES_MAX} bytes")));
    }
    if !asked.says("use_regex") {
        return Ok(Some(Name::Part(text.to_lowercase())));
    }
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(true);
    builder.size_limit(PATTERN_COMPILED_BYTES_MAX);
    builder.dfa_size_limit(PATTERN_COMPILED_BYTES_MAX);
    let pattern = builder.build();
    let pattern = pattern.map_err(|_| Problem::bad(INVALID))?;
    Ok(Some(Name::Pattern(pattern)))
}

fn find<'a>(item: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(item, |value, field| value.get(field))
}

/// The order of two items by a column, forth or back. What has no value there is last in both.
pub(crate) fn last_if_none<T>(
    one: Option<T>,
    other: Option<T>,
    is_reversed: bool,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Ordering {
    match (&one, &other) {
        (Some(one), Some(other)) if is_reversed => compare(other, one),
        (Some(one), Some(other)) => compare(one, other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

/// Truth values come first, then numbers, texts, and what has parts last.
fn compare(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    };
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
            one.total_cmp(&other)
        }
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

/// Copies what `path` names. What lies inside something keeps its place there.
fn keep(fields: &Map<String, Value>, path: &[String], kept: &mut Map<String, Value>) {
    let [first, rest @ ..] = path else { return };
    let Some(value) = fields.get(first) else { return };
    match (rest.is_empty(), value) {
        (true, value) => {
            kept.insert(first.clone(), value.clone());
        }
        (false, Value::Object(inner)) => {
            let place = kept.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(place) = place {
                keep(inner, rest, place);
            }
        }
        (false, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(query: &str) -> Result<Shape, Problem> {
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Shape::of(&Asked { query, ..Asked::default() })
    }

    fn items() -> Vec<Value> {
        [("a", 3), ("b", 1), ("c", 2)]
            .map(
                |(name, count)| json!({ "name": name, "messages": count, "x": { "y": 1, "z": 2 } }),
            )
            .to_vec()
    }

    #[test]
    fn without_a_page_a_list_is_a_list() {
        let reply = shape("").unwrap().reply(items(), 3);
        assert_eq!(reply.body, Some(items().into()));
    }

    #[test]
    fn pages_say_how_many_there_are() {
        let shape = shape("page=2&page_size=2").unwrap();
        assert_eq!(shape.window(3), Some(2..3));
        let body = shape.reply(items(), 7).body.unwrap();
        assert_eq!(body["items"][0]["name"], "c");
        assert_eq!(body["item_count"], 1);
        assert_eq!((&body["filtered_count"], &body["total_count"]), (&json!(3), &json!(7)));
        assert_eq!(body["page_count"], 2);
    }

    #[test]
    fn a_page_that_is_not_there_is_refused() {
        let reply = shape("page=3&page_size=2").unwrap().reply(items(), 3);
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        let reason = "Page out of range, page: 3 page size: 2, len: 3";
        let body = json!({ "error": "page_out_of_range", "reason": reason });
        assert_eq!(reply.body, Some(body));
        let refused = |query: &str| {
            let Value::Object(body) = shape(query).unwrap_err().reply().body.unwrap() else {
                panic!("{query}: no object");
            };
            let word = |name: &str| body[name].as_str().unwrap().to_owned();
            (word("error"), word("reason"))
        };
        let said = |error: &str, reason: &str| (error.to_owned(), reason.to_owned());
        for (wrong, page, size) in [
            ("page=0", "0", "undefined"),
            ("page=1&page_size=501", "1", "501"),
            ("page=1&page_size=0", "1", "0"),
            ("page=1&page_size=-1", "1", "-1"),
        ] {
            let reason =
                format!("Invalid pagination parameters: page number {page}, page size {size}");
            assert_eq!(refused(wrong), said("invalid_pagination_parameters", &reason), "{wrong}");
        }
        for wrong in ["page=x", "page=1&page_size=x", "page=1&name=(&use_regex=true"] {
            let reason = "Pagination parameters are invalid";
            assert_eq!(refused(wrong), said("bad_request", reason), "{wrong}");
        }
    }

    #[test]
    fn of_nothing_there_is_a_first_page_and_no_second() {
        let body = shape("page=1").unwrap().reply(Vec::new(), 3).body.unwrap();
        assert_eq!((&body["items"], &body["page_count"]), (&json!([]), &json!(0)));
        let second = shape("page=2").unwrap().reply(Vec::new(), 3);
        assert_eq!(second.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_sorted_list_needs_all_items() {
        let shape = shape("page=1&page_size=1&sort=messages&sort_reverse=true").unwrap();
        assert_eq!(shape.window(3), None);
        assert_eq!(shape.reply(items(), 3).body.unwrap()["items"][0]["name"], "a");
    }

    #[test]
    fn what_has_no_value_in_a_column_is_last_in_both_directions() {
        let items = || {
            let of = |name, at: Option<u64>| json!({ "name": name, "oldest_ready_at": at });
            vec![
                of("none", None),
                of("new", Some(9)),
                of("old", Some(4)),
                json!({ "name": "bare" }),
            ]
        };
        for (query, order) in [
            ("sort=oldest_ready_at", ["old", "new", "none", "bare"]),
            ("sort=oldest_ready_at&sort_reverse=true", ["new", "old", "bare", "none"]),
        ] {
            let body = shape(query).unwrap().reply(items(), 4).body.unwrap();
            let names: Vec<&str> =
                body.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
            assert_eq!(names, order, "{query}");
        }
    }

    #[test]
    fn a_page_by_name_needs_its_own_items_alone_in_either_order() {
        let forth = shape("page=2&page_size=1&sort=name").unwrap();
        assert_eq!((forth.window(3), forth.is_reversed()), (Some(1..2), false));
        let back = shape("page=1&page_size=2&sort=name&sort_reverse=true").unwrap();
        assert_eq!((back.window(3), back.is_reversed()), (Some(0..2), true));
    }

    #[test]
    fn columns_are_kept_with_their_places() {
        let reply = shape("columns=name,x.y,none").unwrap().reply(items(), 3);
        assert_eq!(reply.body.unwrap()[0], json!({ "name": "a", "x": { "y": 1 } }));
    }

    #[test]
    fn names_are_found_by_a_part_or_a_pattern() {
        assert!(shape("name=RDE").unwrap().wants("orders"));
        assert!(!shape("name=^o").unwrap().wants("orders"));
        assert!(shape("name=%5Eo.*s%24&use_regex=true").unwrap().wants("Orders"));
        assert!(matches!(shape("name=(&use_regex=true"), Err(Problem::Bad(_))));
    }
}
