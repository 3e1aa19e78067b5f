//! The ports of `millrace dev`: node 1 has the first of each kind, the next node the next. Pure: it is told which ports
//! are free.

/// Between two beginnings that are tried in place of one that is taken.
const STEP: usize = 10;

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Amqp,
    Http,
    Metrics,
    Peers,
}

impl Use {
    /// Those of a cluster of so many nodes: a node alone has no peers.
    fn all(nodes: u16) -> &'static [Self] {
        match nodes {
            1 => &[Self::Amqp, Self::Http, Self::Metrics],
            _ => &[Self::Amqp, Self::Http, Self::Metrics, Self::Peers],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Amqp => "AMQP",
            Self::Http => "the HTTP API",
            Self::Metrics => "metrics",
            Self::Peers => "the other nodes",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Amqp => "--amqp-port",
            Self::Http => "--http-port",
            Self::Metrics => "--metrics-port",
            Self::Peers => "--peer-port",
        }
    }
}

/// The ports of node 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) amqp: u16,
    pub(super) http: u16,
    pub(super) metrics: u16,
    pub(super) peers: u16,
}

impl Ports {
    fn first(self, of: Use) -> u16 {
        match of {
            Use::Amqp => self.amqp,
            Use::Http => self.http,
            Use::Metrics => self.metrics,
            Use::Peers => self.peers,
        }
    }

    /// The port of a node, which [`Ports::check`] has found to be one.
    pub(super) fn of(self, of: Use, node: u16) -> u16 {
        self.first(of).saturating_add(node - 1)
    }

    /// All ports of a kind.
    fn range(self, of: Use, nodes: u16) -> std::ops::RangeInclusive<u32> {
        let first = u32::from(self.first(of));
        first..=first + u32::from(nodes) - 1
    }

    /// Whether all of them are ports, and none is meant for two things.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub(super) fn check(self, nodes: u16) -> Result<(), String> {
        for (nth, &of) in Use::all(nodes).iter().enumerate() {
            let range = self.range(of, nodes);
            if *range.start() == 0 || *range.end() > u32::from(u16::MAX) {
                return Err(format!(
                    "{} {}: ports go from 1 to 65535, and {nodes} nodes take as many of them in a row",
                    of.option(),
                    self.first(of)
                ));
            }
            for &other in &Use::all(nodes)[..nth] {
                let taken = self.range(other, nodes);
                if range.start() <= taken.end() && taken.start() <= range.end() {
                    return Err(format!(
                        "{} {} and {} {} overlap: {nodes} nodes take as many ports in a row of each",
                        other.option(),
                        self.first(other),
                        of.option(),
                        self.first(of)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether all of them are free. `movable`: whether the ports between the nodes may be others.
    ///
    /// # Errors
    /// Which are not, and which options move them.
    pub(super) fn must_be_free(
        self,
        nodes: u16,
        movable: bool,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<(), String> {
        let (mut taken, mut options) = (Vec::new(), Vec::new());
        let mut are_fixed_taken = false;
        for &of in Use::all(nodes) {
            let held = (1..=nodes).filter(|node| !is_free(self.of(of, *node)));
            let held: Vec<String> = held
                .map(|node| format!("port {} ({} of node {node})", self.of(of, node), of.name()))
                .collect();
            if held.is_empty() {
                continue;
            }
            taken.extend(held);
            if of == Use::Peers && !movable {
                are_fixed_taken = true;
            } else if let Some(first) = self.free_beginning(of, nodes, &is_free) {
                options.push(format!("{} {first}", of.option()));
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let is = if taken.len() == 1 { "is" } else { "are" };
        let mut told = format!(
            "{} {is} taken: another program listens there, perhaps another `millrace`",
            taken.join(", ")
        );
        if !options.is_empty() {
            told.push_str(&format!(". Other ports, which are free now: {}", options.join(" ")));
        }
        if are_fixed_taken {
            told.push_str(
                ". The nodes of this directory know each other by their ports, which cannot move: end that program, or \
                 begin with another directory",
            );
        }
        Err(told)
    }

    /// A first port with which all nodes would have free ones that nothing else here is to have.
    fn free_beginning(self, of: Use, nodes: u16, is_free: impl Fn(u16) -> bool) -> Option<u16> {
        let beginnings = (self.first(of)..=u16::MAX - nodes).step_by(STEP).skip(1);
        let others = Use::all(nodes).iter().filter(|other| **other != of);
        let is_wanted = |port: u16| {
            others.clone().any(|other| self.range(*other, nodes).contains(&u32::from(port)))
        };
        let mut beginnings = beginnings
            .filter(|first| (*first..*first + nodes).all(|port| !is_wanted(port) && is_free(port)));
        beginnings.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { amqp: 5672, http: 15672, metrics: 15692, peers: 25672 };

    #[test]
    fn the_usual_ports_do_not_overlap_for_as_many_nodes_as_there_may_be() {
        assert_eq!(PORTS.check(super::super::plan::NODES_MAX), Ok(()));
        assert_eq!(PORTS.of(Use::Http, 3), 15674);
    }

    #[test]
    fn ports_that_are_none_or_overlap_are_told_with_their_options() {
        let high = Ports { metrics: 65534, ..PORTS };
        assert!(high.check(3).unwrap_err().starts_with("--metrics-port 65534: "));
        assert_eq!(high.check(2), Ok(()));
        assert!(Ports { amqp: 0, ..PORTS }.check(1).is_err());
        let close = Ports { http: 5674, ..PORTS };
        let told = close.check(3).unwrap_err();
        assert!(told.contains("--amqp-port 5672 and --http-port 5674 overlap"), "{told}");
        assert_eq!(close.check(2), Ok(()));
        // A node alone has no peers.
        assert_eq!(Ports { peers: 5672, ..PORTS }.check(1), Ok(()));
    }

    #[test]
    fn ports_that_are_taken_are_named_with_the_options_that_move_them() {
        assert_eq!(PORTS.must_be_free(3, true, |_| true), Ok(()));
        let is_free = |port| ![5673, 15672, 15674, 15682].contains(&port);
        let told = PORTS.must_be_free(3, true, is_free).unwrap_err();
        assert!(
            told.starts_with(
                "port 5673 (AMQP of node 2), port 15672 (the HTTP API of node 1), port 15674 (the HTTP API of node 3) \
                 are taken: "
            ),
            "{told}"
        );
        // 15682 is taken, and 15692 is for metrics.
        assert!(told.ends_with("free now: --amqp-port 5682 --http-port 15702"), "{told}");
    }

    #[test]
    fn ports_by_which_nodes_know_each_other_do_not_move() {
        let told = PORTS.must_be_free(3, false, |port| port != 25672).unwrap_err();
        assert!(told.contains("port 25672 (the other nodes of node 1) is taken"), "{told}");
        assert!(told.contains("cannot move") && !told.contains("--peer-port"), "{told}");
    }
}
