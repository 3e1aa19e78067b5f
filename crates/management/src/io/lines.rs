//! What the connections of this node say of themselves, and which of them a list shows.

use std::net::SocketAddr;
use std::sync::Arc;

use broker::ConnectionId;
use broker::io::describe::ListedConnection;
use broker::limits::LISTED_CONNECTIONS_MAX;
use broker::session::describe::{ConnectionLine, ConnectionState};

use super::api::{Api, now_ms};
use super::connections::Wanted;
use crate::limits::{ASKED_CONNECTIONS_MAX, PICTURE_MS};
use crate::page::Shape;

/// What the connections of a node said of themselves.
#[derive(Debug)]
pub(super) struct Lines {
    at_ms: u64,
    all: Arc<Vec<Known>>,
}

/// A connection that has answered.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: ConnectionId,
    pub(super) line: ConnectionLine,
    pub(super) is_tls: bool,
}

impl Wanted {
    pub(super) fn wants(&self, Known { line, .. }: &Known) -> bool {
        self.user.as_ref().is_none_or(|user| *user == line.user)
            && self.vhost.as_ref().is_none_or(|vhost| *vhost == line.vhost)
    }
}

/// Which connections a list shows: all that are wanted, or those of its page, if the order is that of names.
pub(super) struct Cut {
    pub(super) places: Vec<usize>,
    pub(super) is_page: bool,
    pub(super) filtered_count: usize,
    pub(super) total_count: usize,
}

impl Cut {
    pub(super) fn of(all: &[Known], local: SocketAddr, wanted: &Wanted, shape: &Shape) -> Self {
        let of_these = all.iter().enumerate().filter(|(_, known)| wanted.wants(known));
        let named = of_these.map(|(place, known)| (name_at(local, &known.line), place));
        let mut named: Vec<(String, usize)> = named.collect();
        let total_count = named.len();
        named.retain(|(name, _)| shape.wants(name));
        let filtered_count = named.len();
        let window = shape.window(filtered_count);
        let is_page = window.is_some();
        if let Some(window) = window {
            named.sort();
            if shape.is_reversed() {
                named.reverse();
            }
            named = named.drain(window).collect();
        }
        let places = named.into_iter().map(|(_, place)| place).collect();
        Self { places, is_page, filtered_count, total_count }
    }
}

/// All connections of this node that are open, and what they do: where there are many, a second ago at most.
pub(super) async fn latest(api: &Api) -> Arc<Vec<Known>> {
    if api.0.broker.connection_count() <= ASKED_CONNECTIONS_MAX {
        *api.0.lines.lock().await = None;
        return Arc::new(known(api).await);
    }
    // Who asks at the same time waits for the same answers.
    let mut last = api.0.lines.lock().await;
    if let Some(Lines { at_ms, all }) = last.as_ref()
        && now_ms().saturating_sub(*at_ms) < PICTURE_MS
    {
        return Arc::clone(all);
    }
    let all = Arc::new(known(api).await);
    *last = Some(Lines { at_ms: now_ms(), all: Arc::clone(&all) });
    all
}

/// All connections of this node that are open and say what they do.
pub(super) async fn known(api: &Api) -> Vec<Known> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = api.0.broker.connections().list(after, LISTED_CONNECTIONS_MAX).await;
        let lines = page.connections.into_iter().filter_map(|listed| {
            let ListedConnection { id, line, is_tls, .. } = listed;
            let line = line.ok().filter(|line| line.state != ConnectionState::Opening)?;
            Some(Known { id, line, is_tls })
        });
        all.extend(lines);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

pub(super) fn name_at(local: SocketAddr, line: &ConnectionLine) -> String {
    format!("{} -> {local}", line.peer)
}

#[cfg(test)]
mod tests {
    use machine::NodeId;

    use super::*;
    use crate::asked::Asked;
    use crate::work::Of;

    fn known(number: u64, user: &str) -> Known {
        let id = ConnectionId { node: NodeId(1), number };
        let line = ConnectionLine {
            peer: SocketAddr::from(([127, 0, 0, 1], 40_000 + number as u16)),
            user: user.to_owned(),
            vhost: "/".to_owned(),
            client: String::new(),
            state: ConnectionState::Running,
            since_ms: 0,
            channel_count: 0,
            consumer_count: 0,
            in_flight_bytes: 0,
            outbound_bytes: 0,
        };
        Known { id, line, is_tls: false }
    }

    fn cut(query: &str, user: Option<&str>) -> Cut {
        // They came in another order than that of their names.
        let all = [3, 1, 2, 0].map(|number| known(number, if number == 2 { "bob" } else { "ann" }));
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let shape = Shape::of(&Asked { query, ..Asked::default() }).unwrap();
        let user = user.map(str::to_owned);
        let wanted = Wanted { what: Of::Connections, user, vhost: None };
        Cut::of(&all, SocketAddr::from(([127, 0, 0, 1], 5672)), &wanted, &shape)
    }

    #[test]
    fn a_page_in_the_order_of_names_has_only_its_own_connections() {
        let page = cut("page=1&page_size=3", None);
        assert_eq!((page.places, page.is_page), (vec![3, 1, 2], true));
        let last = cut("page=2&page_size=3&sort=name&sort_reverse=true", None);
        assert_eq!((last.places, last.filtered_count, last.total_count), (vec![3], 4, 4));
        let of_ann = cut("page=1&page_size=3&name=4000", Some("ann"));
        assert_eq!((of_ann.places, of_ann.total_count), (vec![3, 1, 0], 3));
        let found = cut("page=1&name=40001", None);
        assert_eq!((found.places, found.filtered_count, found.total_count), (vec![1], 1, 4));
    }

    #[test]
    fn a_list_in_another_order_needs_all_that_are_wanted() {
        let by_number = cut("page=1&page_size=1&sort=channels", Some("ann"));
        assert_eq!((by_number.places, by_number.is_page), (vec![0, 1, 3], false));
        assert_eq!(cut("", None).places, [0, 1, 2, 3]);
    }
}
