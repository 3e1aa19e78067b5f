//! One look at a broker: the totals, what is wrong, and one page of a list. The node sorts, filters and cuts the page, so
//! a look has as many rows as are shown, however many there are.

use serde_json::Value;

use super::view::View;
use crate::cmd::admin::failure::Failure;
use crate::cmd::admin::path::Path;
use crate::cmd::admin::problems::{Problem, problems};
use crate::cmd::admin::session::Session;

/// Rows of a page: what the node gives at most.
pub(super) const ROWS_MAX: usize = 500;

/// Which rows are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) view: View,
    /// `None`: of all vhosts that the user sees.
    pub(super) vhost: Option<String>,
    /// Of the view's sorts.
    pub(super) sort: usize,
    pub(super) is_reversed: bool,
    /// What names must have in them.
    pub(super) filter: String,
    /// From 1 on.
    pub(super) page: usize,
    pub(super) rows: usize,
}

impl Wish {
    /// Whether the largest comes first.
    pub(super) fn is_descending(&self) -> bool {
        self.view.sorted_by(self.sort).is_number() != self.is_reversed
    }

    fn path(&self) -> Path {
        let path = match (self.view, &self.vhost) {
            (View::Queues, None) => Path::of(&["queues"]),
            (View::Queues, Some(vhost)) => Path::of(&["queues", vhost]),
            (View::Connections, None) => Path::of(&["connections"]),
            (View::Connections, Some(vhost)) => Path::of(&["vhosts", vhost, "connections"]),
        };
        let columns: Vec<&str> = self.view.columns().iter().map(|column| column.from).collect();
        let mut path = path
            .with("page", &self.page.to_string())
            .with("page_size", &self.rows.clamp(1, ROWS_MAX).to_string())
            .with("sort", self.view.sorted_by(self.sort).from)
            .with("columns", &columns.join(","));
        if self.is_descending() {
            path = path.with("sort_reverse", "true");
        }
        if !self.filter.is_empty() {
            path = path.with("name", &self.filter);
        }
        path
    }
}

/// What the whole broker says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// The node that was asked.
    pub(super) node: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) version: Option<String>,
    /// Nodes that run, of how many. `None`: the user may not see nodes.
    pub(super) nodes: Option<(usize, usize)>,
    pub(super) ready: Option<u64>,
    pub(super) unacked: Option<u64>,
    /// Messages in each second.
    pub(super) publish_rate: Option<f64>,
    pub(super) deliver_rate: Option<f64>,
    pub(super) ack_rate: Option<f64>,
    pub(super) queues: Option<u64>,
    pub(super) connections: Option<u64>,
    pub(super) channels: Option<u64>,
    pub(super) consumers: Option<u64>,
    /// The worst first.
    pub(super) problems: Vec<Problem>,
}

/// One look.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) view: View,
    pub(super) totals: Totals,
    pub(super) items: Vec<Value>,
    /// Those that match, on this page or another.
    pub(super) matching: usize,
    pub(super) page: usize,
    pub(super) page_count: usize,
}

/// Asks for it. A page that is not there any more becomes the first.
pub(super) async fn look(session: &mut Session, wish: &Wish) -> Result<Look, Failure> {
    let overview = session.api.get(Path::of(&["overview"]), "the overview").await?;
    let path = Path::of(&["nodes"]).with("columns", "name,running");
    // Who only manages does not see nodes.
    let nodes = match session.api.get(path, "nodes").await {
        Ok(Value::Array(nodes)) => Some(nodes),
        Ok(_) | Err(Failure::Login(_)) => None,
        Err(failure) => return Err(failure),
    };
    let told = session.api.find(Path::of(&["millrace", "problems"]), "what is wrong").await?;
    let totals = totals(&overview, nodes.as_deref(), problems(told.as_ref()));
    let name = wish.view.name();
    let list = match session.api.get(wish.path(), name).await {
        Err(Failure::Refused(why)) if wish.page > 1 && why.contains("page_out_of_range") => {
            let first = Wish { page: 1, ..wish.clone() };
            session.api.get(first.path(), name).await?
        }
        answered => answered?,
    };
    page(wish, totals, list)
        .ok_or_else(|| Failure::Away(format!("{name}: the answer is no page of a list")))
}

fn page(wish: &Wish, totals: Totals, mut list: Value) -> Option<Look> {
    let number = |field: &str| list[field].as_u64().and_then(|count| usize::try_from(count).ok());
    let (matching, page, page_count) =
        (number("filtered_count")?, number("page")?, number("page_count")?);
    let Value::Array(mut items) = list["items"].take() else { return None };
    items.truncate(wish.rows.min(ROWS_MAX));
    Some(Look { view: wish.view, totals, items, matching, page, page_count })
}

fn totals(overview: &Value, nodes: Option<&[Value]>, problems: Vec<Problem>) -> Totals {
    let text = |field: &str| overview[field].as_str().map(str::to_owned);
    let messages = |field: &str| overview["queue_totals"][field].as_u64();
    let objects = |field: &str| overview["object_totals"][field].as_u64();
    let rate = |field: &str| overview["message_stats"][field]["rate"].as_f64();
    let running = |nodes: &[Value]| {
        (nodes.iter().filter(|node| node["running"] == true).count(), nodes.len())
    };
    Totals {
        node: text("node"),
        cluster: text("cluster_name"),
        version: text("product_version"),
        nodes: nodes.map(running),
        ready: messages("messages_ready"),
        unacked: messages("messages_unacknowledged"),
        publish_rate: rate("publish_details"),
        deliver_rate: rate("deliver_get_details"),
        ack_rate: rate("ack_details"),
        queues: objects("queues"),
        connections: objects("connections"),
        channels: objects("channels"),
        consumers: objects("consumers"),
        problems,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WISH: Wish = Wish {
        view: View::Queues,
        vhost: None,
        sort: 0,
        is_reversed: false,
        filter: String::new(),
        page: 1,
        rows: 20,
    };

    #[test]
    fn the_node_sorts_filters_and_cuts_the_page() {
        let text = WISH.path().text().to_owned();
        assert!(
            text.starts_with("/api/queues?page=1&page_size=20&sort=messages_ready&columns=name%2C"),
            "{text}"
        );
        assert!(text.ends_with("&sort_reverse=true"), "numbers begin with the largest: {text}");
        let wish = Wish {
            vhost: Some("/".to_owned()),
            filter: "a b".to_owned(),
            page: 3,
            rows: 100_000,
            sort: 5,
            ..WISH
        };
        let text = wish.path().text().to_owned();
        assert!(text.starts_with("/api/queues/%2F?page=3&page_size=500&sort=name&"), "{text}");
        assert!(text.ends_with("&name=a%20b"), "texts begin with A: {text}");
        let connections = Wish { view: View::Connections, sort: 0, ..wish };
        assert!(connections.path().text().starts_with("/api/vhosts/%2F/connections?"));
    }

    #[test]
    fn no_more_rows_are_shown_than_were_wanted() {
        let list = |count: usize| {
            let items: Vec<Value> = (0..count).map(|nth| json!({ "name": nth })).collect();
            json!({ "items": items, "filtered_count": 57, "page": 1, "page_count": 3 })
        };
        let found = page(&WISH, Totals::default(), list(100)).unwrap();
        assert_eq!((found.items.len(), found.matching, found.page_count), (20, 57, 3));
        assert_eq!(page(&WISH, Totals::default(), json!([])), None);
    }

    #[test]
    fn what_a_node_does_not_say_is_not_known() {
        assert_eq!(totals(&json!({}), None, Vec::new()), Totals::default());
        let nodes = [json!({ "running": true }), json!({ "running": false })];
        let overview = json!({
            "queue_totals": { "messages_ready": 3 },
            "message_stats": { "publish_details": { "rate": 1.5 } },
        });
        let read = totals(&overview, Some(&nodes), Vec::new());
        assert_eq!((read.nodes, read.ready), (Some((1, 2)), Some(3)));
        assert_eq!((read.publish_rate, read.ack_rate), (Some(1.5), None));
    }
}
