//! Lists: fetched page by page, as a table or as JSON, once or again and again.
#![allow(clippy::disallowed_methods, reason = "--watch waits between two looks")]

use std::io::IsTerminal as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::column::Column;
use super::failure::{Failure, remark};
use super::path::Path;
use super::session::{Session, say, say_json};
use crate::table;

/// Items of one list.
const ITEMS_MAX: usize = 100_000;
/// Items of a page: what the server gives at most.
const PAGE_SIZE: usize = 500;
/// Cursor home, and everything below it cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// A kind of list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    /// What the items are called, also in JSON.
    pub(crate) name: &'static str,
    /// Whether the node can look for names.
    pub(crate) has_names: bool,
    pub(crate) columns: &'static [Column],
}

/// How a list is to be shown.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
#[group(skip)]
pub(crate) struct Options {
    /// Show only those with this text in their name; capitals do not matter
    #[arg(long, value_name = "TEXT", help_heading = "List")]
    name: Option<String>,
    /// --name is a regular expression
    #[arg(long, requires = "name", help_heading = "List")]
    regex: bool,
    /// Show these columns, parted by commas. A wrong name lists those that there are
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "List")]
    columns: Vec<String>,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN", help_heading = "List")]
    sort: Option<String>,
    /// Sort in reverse
    #[arg(long, help_heading = "List")]
    reverse: bool,
    /// Show this many at most
    #[arg(long, value_name = "COUNT", help_heading = "List")]
    limit: Option<usize>,
    /// Show the list again and again, at this interval: 1s, 10s
    #[arg(
        long,
        value_name = "TIME",
        value_parser = service::duration,
        num_args = 0..=1,
        default_missing_value = "2s",
        help_heading = "List"
    )]
    watch: Option<Duration>,
    /// With --watch: end after this many looks
    #[arg(long, value_name = "COUNT", requires = "watch", help_heading = "List")]
    looks: Option<u64>,
}

/// The same of the subcommand `list`, which takes columns as words, too.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Listed {
    #[command(flatten)]
    options: Options,
    /// Columns to show, by their names
    #[arg(value_name = "COLUMN")]
    more: Vec<String>,
}

impl Listed {
    /// `before`: options that stood before the word `list`.
    pub(crate) fn options(self, before: Options) -> Result<Options, Failure> {
        before.none_before("list")?;
        let mut options = self.options;
        options.columns.extend(self.more);
        Ok(options)
    }
}

impl Options {
    /// Refuses options of a list before another subcommand, where they would mean nothing.
    pub(crate) fn none_before(&self, subcommand: &str) -> Result<(), Failure> {
        match *self == Self::default() {
            true => Ok(()),
            false => {
                Err(Failure::Usage(format!("options of the list stand before `{subcommand}`")))
            }
        }
    }

    /// The columns: those that are named, else the usual ones, in JSON all.
    fn columns<'a>(&self, listing: &'a Listing, is_json: bool) -> Result<Vec<&'a Column>, Failure> {
        if self.columns.is_empty() {
            let usual = listing.columns.iter().filter(|column| is_json || column.is_usual);
            return Ok(usual.collect());
        }
        self.columns.iter().map(|key| find(listing, key)).collect()
    }
}

fn find<'a>(listing: &'a Listing, key: &str) -> Result<&'a Column, Failure> {
    listing.columns.iter().find(|column| column.key == key).ok_or_else(|| {
        let known: Vec<&str> = listing.columns.iter().map(|column| column.key).collect();
        Failure::Usage(format!(
            "{} have no column `{key}`; there are {}",
            listing.name,
            known.join(", ")
        ))
    })
}

/// What was found.
struct Found {
    items: Vec<Value>,
    /// Those that match, shown or not.
    total: usize,
}

/// Shows the list at `path`, once or until it is stopped.
pub(crate) async fn show(
    session: &mut Session,
    listing: &Listing,
    path: Path,
    options: &Options,
) -> Result<(), Failure> {
    let columns = options.columns(listing, session.is_json)?;
    let path = shaped(listing, path, options, &columns)?;
    let limit = options.limit.unwrap_or(ITEMS_MAX).min(ITEMS_MAX);
    let is_cleared = std::io::stdout().is_terminal() && !session.is_json && options.watch.is_some();
    let mut looks = 0;
    loop {
        let found = pages(session, listing.name, &path, limit).await?;
        let rest = found.total.saturating_sub(found.items.len());
        match session.is_json {
            true => say_json(&as_json(listing, &columns, &found))?,
            false => {
                let clear = if is_cleared { CLEAR } else { "" };
                say(&format!("{clear}{}", as_text(listing, &columns, &found)))?;
            }
        }
        if rest > 0 && !session.is_json {
            remark(&format!("{rest} more {} are not shown", listing.name));
        }
        looks += 1;
        let Some(every) = options.watch else { return Ok(()) };
        if options.looks.is_some_and(|most| looks >= most) {
            return Ok(());
        }
        tokio::time::sleep(every.max(Duration::from_millis(100))).await;
    }
}

/// All items of a path that are there, up to `limit`: for commands that count before they act.
pub(crate) async fn fetch(
    session: &mut Session,
    what: &str,
    path: &Path,
    limit: usize,
) -> Result<Vec<Value>, Failure> {
    Ok(pages(session, what, path, limit.min(ITEMS_MAX)).await?.items)
}

/// The path with what the list is to be like.
fn shaped(
    listing: &Listing,
    mut path: Path,
    options: &Options,
    columns: &[&Column],
) -> Result<Path, Failure> {
    if let Some(name) = &options.name {
        if !listing.has_names {
            let why = format!("{} have no names: --name cannot look for one", listing.name);
            return Err(Failure::Usage(why));
        }
        path = path.with("name", name);
        if options.regex {
            path = path.with("use_regex", "true");
        }
    }
    if let Some(key) = &options.sort {
        path = path.with("sort", find(listing, key)?.from);
    }
    if options.reverse {
        path = path.with("sort_reverse", "true");
    }
    let wanted: Vec<&str> = columns.iter().map(|column| column.from).collect();
    Ok(path.with("columns", &wanted.join(",")))
}

async fn pages(
    session: &mut Session,
    what: &str,
    path: &Path,
    limit: usize,
) -> Result<Found, Failure> {
    let mut found = Found { items: Vec::new(), total: 0 };
    let size = PAGE_SIZE.min(limit.max(1));
    for number in 1.. {
        let page = path.clone().with("page", &number.to_string());
        let page = page.with("page_size", &size.to_string());
        let mut answer = match session.api.get(page, what).await {
            Ok(answer) => answer,
            // What was there at the page before is gone meanwhile. The second word is that of earlier nodes.
            Err(Failure::Refused(why))
                if number > 1
                    && (why.contains("Page out of range") || why.contains("page_out_of_range")) =>
            {
                break;
            }
            Err(failure) => return Err(failure),
        };
        // Some lists of RabbitMQ have no pages.
        let is_whole = answer.is_array();
        let items = if is_whole { Some(&mut answer) } else { answer.get_mut("items") };
        let Some(Value::Array(items)) = items.map(Value::take) else {
            return Err(Failure::Away(format!("{what}: the answer is no list")));
        };
        let is_last = is_whole || items.len() < size;
        let counted =
            answer["filtered_count"].as_u64().and_then(|count| usize::try_from(count).ok());
        let fresh = items.len();
        found.items.extend(items);
        found.total = counted.unwrap_or(found.items.len()).max(found.items.len());
        if is_last || fresh == 0 || found.items.len() >= limit {
            break;
        }
    }
    found.items.truncate(limit);
    Ok(found)
}

fn as_text(listing: &Listing, columns: &[&Column], found: &Found) -> String {
    if found.items.is_empty() {
        return format!("no {}", listing.name);
    }
    let heads: Vec<&str> = columns.iter().map(|column| column.head).collect();
    let row = |item| columns.iter().map(|column| column.cell(item)).collect::<Vec<String>>();
    let rows: Vec<Vec<String>> = found.items.iter().map(row).collect();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = table::grid(&mut text, &heads, &rows);
    text
}

fn as_json(listing: &Listing, columns: &[&Column], found: &Found) -> Value {
    let fields = |item| {
        let fields = columns.iter().map(|column| (column.key.to_owned(), column.value(item)));
        Value::Object(fields.collect::<Map<String, Value>>())
    };
    let items: Vec<Value> = found.items.iter().map(fields).collect();
    json!({ "count": items.len(), "total": found.total, listing.name: items })
}

#[cfg(test)]
mod tests {
    use super::super::column::{count, text};
    use super::*;

    const LISTING: Listing = Listing {
        name: "queues",
        has_names: true,
        columns: &[text("name", "Name"), count("messages", "Messages").seldom()],
    };

    fn options(columns: &[&str]) -> Options {
        let columns = columns.iter().map(|key| (*key).to_owned()).collect();
        Options { columns, ..Options::default() }
    }

    fn keys(columns: &[&str], is_json: bool) -> Result<Vec<&'static str>, Failure> {
        let found = options(columns).columns(&LISTING, is_json)?;
        Ok(found.into_iter().map(|column| column.key).collect())
    }

    #[test]
    fn people_see_the_usual_columns_and_programs_all() {
        assert_eq!(keys(&[], false), Ok(vec!["name"]));
        assert_eq!(keys(&[], true), Ok(vec!["name", "messages"]));
        assert_eq!(keys(&["messages"], true), Ok(vec!["messages"]));
        let Err(Failure::Usage(told)) = keys(&["memory"], false) else { panic!("it is known") };
        assert!(told.contains("`memory`") && told.contains("name, messages"), "{told}");
    }

    #[test]
    fn every_column_is_in_json_also_where_the_node_says_nothing() {
        let columns: Vec<&Column> = LISTING.columns.iter().collect();
        let found = Found { items: vec![json!({ "name": "a", "more": 1 })], total: 3 };
        let shown = as_json(&LISTING, &columns, &found);
        let item = json!({ "name": "a", "messages": null });
        assert_eq!(shown, json!({ "count": 1, "total": 3, "queues": [item] }));
        let none = Found { items: Vec::new(), total: 0 };
        assert_eq!(as_text(&LISTING, &columns, &none), "no queues");
    }

    #[test]
    fn the_node_is_asked_for_what_is_shown() {
        let columns: Vec<&Column> = LISTING.columns.iter().collect();
        let wish = Options {
            name: Some("^a".to_owned()),
            regex: true,
            sort: Some("messages".to_owned()),
            reverse: true,
            ..Options::default()
        };
        let path = shaped(&LISTING, Path::of(&["queues"]), &wish, &columns).unwrap();
        let query =
            "name=%5Ea&use_regex=true&sort=messages&sort_reverse=true&columns=name%2Cmessages";
        assert_eq!(path.text(), format!("/api/queues?{query}"));
        let nameless = Listing { has_names: false, ..LISTING };
        assert!(shaped(&nameless, Path::of(&["x"]), &wish, &columns).is_err());
    }
}
