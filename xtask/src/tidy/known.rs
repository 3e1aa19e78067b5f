//! Import circles and types in many files that we know of, each with its reason: new ones are findings,
//! and so are entries that are no longer as they say. Whoever mends one deletes it here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::Finding;
use super::circles::circles;
use super::modules::Package;
use super::spread::spread;

/// Files of a package that import each other in a circle.
struct Circle {
    package: &'static str,
    /// Below `src`, parted by blanks.
    files: &'static str,
    reason: &'static str,
}

/// A type whose methods stand in more files than a reader wants to open.
struct Spread {
    package: &'static str,
    /// The file that defines it, and its name.
    name: &'static str,
    file_count: usize,
    reason: &'static str,
}

/// What is compared with the sources. Another one is there for tests.
struct Known<'a> {
    circles: &'a [Circle],
    spread: &'a [Spread],
}

const KNOWN: Known = Known { circles: CIRCLES, spread: SPREAD };

const CIRCLES: &[Circle] = &[
    Circle {
        package: "crates/client",
        files: "io/connection io/consumer",
        reason: "A connection is how a consumer is made, and a consumer's end is told like a \
                 connection's.",
    },
    Circle {
        package: "crates/relay",
        files: "inbox/json inbox/row",
        reason: "A row may hold JSON, and JSON may hold a row's values.",
    },
    Circle {
        package: "crates/worker",
        files: "batches chain",
        reason: "A chain may end in a batch, and a batch in a chain.",
    },
    Circle {
        package: "crates/worker",
        files: "io/target/apns/connection io/target/apns/shared",
        reason: "A connection works on what all share, and what is shared starts connections.",
    },
    Circle {
        package: "crates/worker",
        files: "io/target/program/process io/target/program/spawner",
        reason: "A process goes back to the spawner that made it.",
    },
    Circle {
        package: "trials",
        files: "checker/facts checker/features checker/pauses checker/retries",
        reason: "The facts hold what each promise notes, and each promise is judged by all facts.",
    },
    Circle {
        package: "trials",
        files: "sim/disks sim/nemesis sim/operator sim/world",
        reason: "The world is what nemesis, disks and operator work on, and it gives each its \
                 turn.",
    },
];

const SPREAD: &[Spread] = &[
    Spread {
        package: "crates/machine",
        name: "catalog/vhosts::Vhost",
        file_count: 4,
        reason: "To be mended: bindings and exchanges of a vhost are tables of their own.",
    },
    Spread {
        package: "crates/machine",
        name: "catalog::Catalog",
        file_count: 11,
        reason: "To be mended: each table of the catalog becomes a type of its own.",
    },
    Spread {
        package: "crates/machine",
        name: "queue/machine::QueueMachine",
        file_count: 11,
        reason: "Its files are the leader's half, the snapshot, timers, consumers, subscriptions, filters and what is \
                 told to operators: a reader needs one at a time.",
    },
    Spread {
        package: "crates/machine",
        name: "queue::Queue",
        file_count: 6,
        reason: "To be mended: the queue's store and its reader become types of their own.",
    },
    Spread {
        package: "crates/machine",
        name: "queue/reader::Reading",
        file_count: 4,
        reason: "A reader acts in four ways, each with its file: what entries do, what the leader gives out, how it is moved, \
                 what is withheld from it.",
    },
    Spread {
        package: "crates/cluster",
        name: "bodies::Bodies",
        file_count: 4,
        reason: "To be mended: what a queue reads, its own places or those of a stream, becomes a type.",
    },
    Spread {
        package: "crates/cluster",
        name: "io/handle::ClusterHandle",
        file_count: 4,
        reason: "Each file has one kind of question that the node asks its groups.",
    },
    Spread {
        package: "crates/cluster",
        name: "shard::Shard",
        file_count: 19,
        reason: "A shard hands each input to one of its parts; its files are sorted by what happens: \
                 leading, members, peers, requests, snapshots.",
    },
    Spread {
        package: "crates/broker",
        name: "channel/topology::Topology",
        file_count: 4,
        reason: "Declares and bindings are the two halves of one state, and their answers the third.",
    },
    Spread {
        package: "crates/broker",
        name: "session::Session",
        file_count: 7,
        reason: "A session hands each step to the parts of its connection: one file for each kind of \
                 step.",
    },
    Spread {
        package: "crates/worker",
        name: "pool::Pool",
        file_count: 8,
        reason: "To be mended: what waits, what runs and what is limited are parts of a pool.",
    },
    Spread {
        package: "trials",
        name: "sim/world::World",
        file_count: 4,
        reason: "What happens to the world is sorted by who does it: disks, nemesis, operator.",
    },
];

/// Compares what a package has with what is known of it.
pub(super) fn check(package: &Package, findings: &mut Vec<Finding>) {
    KNOWN.check_circles(package, findings);
    KNOWN.check_spread(package, findings);
}

impl Known<'_> {
    fn check_circles(&self, package: &Package, findings: &mut Vec<Finding>) {
        let mut find = |message| findings.push(finding(package, message));
        let mut found = circles(package);
        for known in self.circles.iter().filter(|known| known.package == package.folder) {
            let files: BTreeSet<String> =
                known.files.split_whitespace().map(String::from).collect();
            let place = found.iter().position(|circle| !circle.is_disjoint(&files));
            let Some(circle) = place.map(|place| found.remove(place)) else {
                find(format!("the circle `{}` is mended: {DELETE}", known.files));
                continue;
            };
            let joined = words(circle.difference(&files));
            if !joined.is_empty() {
                let Circle { files, reason, .. } = known;
                find(format!("`{joined}` now belongs to the circle `{files}` ({reason})"));
            }
            let left = words(files.difference(&circle));
            if !left.is_empty() {
                find(format!("`{left}` has left its circle: {DELETE}"));
            }
        }
        for circle in found {
            find(format!("these files import each other in a circle: {}", words(circle.iter())));
        }
    }

    fn check_spread(&self, package: &Package, findings: &mut Vec<Finding>) {
        let mut find = |message| findings.push(finding(package, message));
        let mut found = spread(package);
        for known in self.spread.iter().filter(|known| known.package == package.folder) {
            let Spread { name, file_count, reason, .. } = known;
            match found.remove(*name).map(|files| files.len()) {
                Some(count) if count == *file_count => {}
                Some(count) => find(format!(
                    "the methods of `{name}` stand in {count} files, and {LIST} says {file_count} ({reason})"
                )),
                None => find(format!("`{name}` is mended: {DELETE}")),
            }
        }
        for (name, files) in found {
            let files = words(files.iter());
            find(format!("the methods of `{name}` stand in too many files: {files}"));
        }
    }
}

const LIST: &str = "xtask/src/tidy/known.rs";
const DELETE: &str = "delete it from xtask/src/tidy/known.rs";

fn finding(package: &Package, message: String) -> Finding {
    let path = PathBuf::from(&package.folder).join("src");
    Finding { path, line: 1, message }
}

fn words<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn messages(known: &Known, files: &[(&str, &str)]) -> Vec<String> {
        let sources = Source::samples(files);
        let package = Package::new("crates/a", &sources);
        let mut findings = Vec::new();
        known.check_circles(&package, &mut findings);
        known.check_spread(&package, &mut findings);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    fn of_circles(circles: &[Circle]) -> Known<'_> {
        Known { circles, spread: &[] }
    }

    fn of_spread(spread: &[Spread]) -> Known<'_> {
        Known { circles: &[], spread }
    }

    const CIRCLE: &[(&str, &str)] =
        &[("b", "use crate::c::C;"), ("c", "use crate::d::D;"), ("d", "use crate::b::B;")];

    #[test]
    fn a_circle_is_found_unless_it_is_known_as_it_is() {
        assert_eq!(messages(&of_circles(&[]), CIRCLE).len(), 1);
        let circle = |files| Circle { package: "crates/a", files, reason: "" };
        assert_eq!(messages(&of_circles(&[circle("b c d")]), CIRCLE), [] as [&str; 0]);
        let message = messages(&of_circles(&[circle("b c")]), CIRCLE).concat();
        assert!(message.starts_with("`d` now belongs"), "{message}");
        let message = messages(&of_circles(&[circle("b c d e")]), CIRCLE).concat();
        assert!(message.starts_with("`e` has left"), "{message}");
        let message = messages(&of_circles(&[circle("b c d"), circle("f g")]), CIRCLE).concat();
        assert!(message.starts_with("the circle `f g` is mended"), "{message}");
    }

    #[test]
    fn a_type_in_many_files_is_found_unless_it_is_known_as_it_is() {
        let files = ["b", "c", "d", "e"].map(|file| (file, "impl crate::b::B {\n}\n"));
        assert_eq!(messages(&of_spread(&[]), &files).len(), 1);
        let spread =
            |name, file_count| Spread { package: "crates/a", name, file_count, reason: "" };
        assert_eq!(messages(&of_spread(&[spread("b::B", 4)]), &files), [] as [&str; 0]);
        assert_eq!(messages(&of_spread(&[spread("b::B", 5)]), &files).len(), 1);
        assert_eq!(messages(&of_spread(&[spread("b::B", 4), spread("c::C", 4)]), &files).len(), 1);
    }

    #[test]
    fn every_entry_has_a_reason() {
        let reasons = CIRCLES.iter().map(|circle| circle.reason);
        let reasons = reasons.chain(SPREAD.iter().map(|spread| spread.reason));
        for reason in reasons {
            assert!(reason.ends_with('.'), "{reason}");
        }
    }
}
