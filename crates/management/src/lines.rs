//! What the connections of a node say of themselves, and which of them a list shows.

use std::net::SocketAddr;
use std::sync::Arc;

use broker::session::describe::ConnectionLine;
use broker::{ConnectionId, Traffic};

use crate::page::Shape;
use crate::work::Of;

/// What the connections of a node said of themselves.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) at_ms: u64,
    pub(crate) all: Arc<Vec<Known>>,
}

/// A connection that has answered.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: ConnectionId,
    pub(crate) line: ConnectionLine,
    pub(crate) is_tls: bool,
    /// How fast each of its totals grows.
    pub(crate) rates: [f64; 5],
}

/// What a connection has moved, as its rates are counted.
pub(crate) fn totals(line: &ConnectionLine) -> [u64; 5] {
    let Traffic { received_bytes, sent_bytes, published, delivered, acked } = line.traffic;
    [received_bytes, sent_bytes, published, delivered, acked]
}

/// What is wanted of the connections of one node.
pub(crate) struct Wanted {
    pub(crate) what: Of,
    pub(crate) user: Option<String>,
    pub(crate) vhost: Option<String>,
}

impl Wanted {
    pub(crate) fn wants(&self, Known { line, .. }: &Known) -> bool {
        self.user.as_ref().is_none_or(|user| *user == line.user)
            && self.vhost.as_ref().is_none_or(|vhost| *vhost == line.vhost)
    }
}

/// Which connections a list shows: all that are wanted, or those of its page, if the order is that of names.
pub(crate) struct Cut {
    pub(crate) places: Vec<usize>,
    pub(crate) is_page: bool,
    pub(crate) filtered_count: usize,
    pub(crate) total_count: usize,
}

impl Cut {
    pub(crate) fn of(all: &[Known], local: SocketAddr, wanted: &Wanted, shape: &Shape) -> Self {
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

/// What RabbitMQ calls a connection, which has come in there.
pub(crate) fn name_at(local: SocketAddr, line: &ConnectionLine) -> String {
    format!("{} -> {local}", line.peer)
}

#[cfg(test)]
mod tests {
    use broker::session::describe::ConnectionState;
    use machine::NodeId;

    use super::*;
    use crate::asked::Asked;

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
            traffic: Traffic::default(),
            blocked_by: None,
        };
        Known { id, line, is_tls: false, rates: [0.0; 5] }
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
