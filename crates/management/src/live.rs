//! What a live stream tells of queues: all of them once, then each second those that have changed.
//!
//! What has changed is written once for all streams, vhost by vhost: a stream sends the events of those vhosts that its
//! user sees. A row is a list of numbers, and a queue's name is told once: 10,000 queues that all change are 10,000 rows
//! of about 50 bytes. If more have changed than are told in one turn, the others are told in the next turns.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use machine::{Queue, QueueId};
use serde_json::{Value, json};

use crate::fronts::{Front, Merged};
use crate::limits::{LIVE_ROWS_MAX, LIVE_SNAPSHOT_ROWS};
use crate::picture::{Picture, QueueStanding};

/// What the numbers of a row are, in their order.
const COLUMNS: [&str; 12] = [
    "id",
    "messages_ready",
    "messages_unacknowledged",
    "consumers",
    "delayed",
    "leaving",
    "publish",
    "ack",
    "publish_rate",
    "ack_rate",
    "oldest_ready_at",
    "ready_bytes",
];

/// Numbers of a queue: as in [`COLUMNS`], rates in tenths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row([u64; COLUMNS.len() - 3], Front);

/// What is told of a queue beside its numbers, once, and again if it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) vhost: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) kind: &'static str,
    /// `None`: nobody has paused it.
    pub(crate) paused_by: Option<Arc<str>>,
}

impl Named {
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            vhost: queue.vhost[..].into(),
            name: queue.name[..].into(),
            kind: queue.queue_type().name(),
            paused_by: queue.pause().map(|pause| pause.by[..].into()),
        }
    }

    /// Whether that is still said of the queue. Its vhost and name stay.
    pub(crate) fn is_of(&self, queue: &Queue) -> bool {
        let paused_by = queue.pause().map(|pause| &pause.by[..]);
        self.kind == queue.queue_type().name() && self.paused_by.as_deref() == paused_by
    }
}

/// A queue that streams know.
#[derive(Debug)]
struct Known {
    named: Named,
    /// What was told last. `None`: its leader does not answer.
    told: Option<Row>,
    is_named: bool,
}

/// What all streams have been told.
#[derive(Debug, Default)]
pub(crate) struct Board {
    queues: BTreeMap<QueueId, Known>,
    picture: Arc<Picture>,
    fronts: Arc<Merged>,
    /// There was a turn: whoever listens has been told what there was then, if only that there was nothing.
    has_begun: bool,
    /// Where the next turn begins.
    next: Option<QueueId>,
}

/// An event of one vhost.
pub(crate) type VhostEvent = (Arc<str>, Bytes);

impl Row {
    fn of(standing: &QueueStanding, front: Front) -> Self {
        let tenths = |rate: f64| (rate * 10.0).round() as u64;
        let status = &standing.status;
        let numbers = [
            status.ready,
            status.unsettled,
            u64::from(status.consumers),
            status.delayed,
            status.leaving,
            status.counters.enqueued,
            status.counters.settled,
            tenths(standing.rates.published),
            tenths(standing.rates.acked),
        ];
        Self(numbers, front)
    }

    fn write(self, queue: QueueId, out: &mut Vec<u8>) {
        let Self(numbers, Front { oldest_ready_ms, ready_bytes }) = self;
        let [ready, unacked, consumers, delayed, leaving, publish, ack, published, acked] = numbers;
        let rate = |tenths: u64| tenths as f64 / 10.0;
        let row = (
            queue.0,
            ready,
            unacked,
            consumers,
            delayed,
            leaving,
            publish,
            ack,
            rate(published),
            rate(acked),
            oldest_ready_ms,
            ready_bytes,
        );
        write(out, &row);
    }
}

/// The row of a queue as it is now. `None`: its leader does not answer.
fn row(picture: &Picture, fronts: &Merged, queue: QueueId) -> Option<Row> {
    let standing = picture.queues.get(&queue)?;
    Some(Row::of(standing, fronts.of(queue, standing.status.ready)))
}

fn write<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("numbers and texts can be written to memory");
}

/// Rows of an event that is being written.
#[derive(Default)]
struct Writing {
    new: Vec<u8>,
    changed: Vec<u8>,
    down: Vec<u8>,
    gone: Vec<u8>,
}

impl Writing {
    fn part(list: &mut Vec<u8>) -> &mut Vec<u8> {
        if !list.is_empty() {
            list.push(b',');
        }
        list
    }

    fn queue(&mut self, queue: QueueId, known: &Known, row: Option<Row>, with_name: bool) {
        if with_name {
            let Named { vhost, name, kind, paused_by } = &known.named;
            let named = (queue.0, &**vhost, &**name, kind, paused_by.as_deref());
            write(Self::part(&mut self.new), &named);
        }
        match row {
            Some(row) => row.write(queue, Self::part(&mut self.changed)),
            None => write(Self::part(&mut self.down), &queue.0),
        }
    }

    /// As an event of a stream.
    fn event(&self, at_ms: u64) -> Bytes {
        let parts = [&self.new, &self.changed, &self.down, &self.gone];
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(bytes + 100);
        out.extend_from_slice(format!("event: queues\ndata: {{\"at\":{at_ms}").as_bytes());
        for (name, part) in ["new", "changed", "down", "gone"].iter().zip(parts) {
            if !part.is_empty() {
                out.extend_from_slice(format!(",\"{name}\":[").as_bytes());
                out.extend_from_slice(part);
                out.push(b']');
            }
        }
        out.extend_from_slice(b"}\n\n");
        out.into()
    }
}

/// An event of a stream.
pub(crate) fn event(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// A stream begins: all that was told before is over. After an upgrade of the node a page that is open is of another
/// version.
pub(crate) fn begin(at_ms: u64) -> Bytes {
    let version = env!("CARGO_PKG_VERSION");
    event("begin", &json!({ "at": at_ms, "version": version, "columns": COLUMNS }))
}

impl Board {
    /// Queues of the picture that nobody has named yet.
    pub(crate) fn unknown(&self, picture: &Picture) -> Vec<QueueId> {
        picture.queues.keys().filter(|queue| !self.queues.contains_key(queue)).copied().collect()
    }

    /// Known queues that are not in the picture: deleted, or their leader does not answer.
    pub(crate) fn absent(&self, picture: &Picture) -> Vec<QueueId> {
        self.queues.keys().filter(|queue| !picture.queues.contains_key(queue)).copied().collect()
    }

    /// What has been said of a known queue beside its numbers.
    pub(crate) fn named(&self) -> impl Iterator<Item = (QueueId, &Named)> {
        self.queues.iter().map(|(queue, known)| (*queue, &known.named))
    }

    /// Nobody listens any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a new picture, with what queues are called that are new or called otherwise, and the queues that are gone.
    /// Answers with what has changed. In the first turn nobody has been told anything yet, so nothing has.
    pub(crate) fn turn(
        &mut self,
        (picture, fronts): (Arc<Picture>, Arc<Merged>),
        named: Vec<(QueueId, Named)>,
        gone: &[QueueId],
    ) -> Vec<VhostEvent> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        (self.picture, self.fronts) = (picture, fronts);
        let mut writing = BTreeMap::<Arc<str>, Writing>::new();
        for queue in gone {
            let Some(known) = self.queues.remove(queue) else { continue };
            let of = writing.entry(known.named.vhost).or_default();
            write(Writing::part(&mut of.gone), &queue.0);
        }
        for (queue, named) in named {
            let told = row(&self.picture, &self.fronts, queue).filter(|_| is_first);
            self.queues.insert(queue, Known { named, told, is_named: is_first });
        }
        if !is_first {
            self.write_changed(&mut writing);
        }
        let at_ms = self.picture.at_ms;
        writing.into_iter().map(|(vhost, of)| (vhost, of.event(at_ms))).collect()
    }

    /// Writes rows of queues that have changed, at most so many, from where the last turn has ended.
    fn write_changed(&mut self, writing: &mut BTreeMap<Arc<str>, Writing>) {
        let from = self.next.take().map_or(Bound::Unbounded, Bound::Included);
        let mut count = 0;
        // Rows of one vhost mostly follow each other.
        let mut of: Option<(Arc<str>, Writing)> = None;
        let (picture, fronts) = (Arc::clone(&self.picture), Arc::clone(&self.fronts));
        for (queue, known) in self.queues.range_mut((from, Bound::Unbounded)) {
            let row = row(&picture, &fronts, *queue);
            if known.is_named && row == known.told {
                continue;
            }
            if count == LIVE_ROWS_MAX {
                self.next = Some(*queue);
                break;
            }
            count += 1;
            let vhost = &known.named.vhost;
            if of.as_ref().is_none_or(|(last, _)| last != vhost) {
                writing.extend(of.take());
                let begun = writing.remove(vhost).unwrap_or_default();
                of = Some((Arc::clone(vhost), begun));
            }
            let Some((_, begun)) = &mut of else { continue };
            begun.queue(*queue, known, row, !known.is_named);
            (known.told, known.is_named) = (row, true);
        }
        writing.extend(of);
    }

    /// Some queues of those vhosts, with their names, behind one of them, and where it goes on. `None`: these were the
    /// last.
    pub(crate) fn snapshot(
        &self,
        behind: Option<QueueId>,
        sees: impl Fn(&str) -> bool,
    ) -> (Option<Bytes>, Option<QueueId>) {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut writing = Writing::default();
        let mut rest = self.queues.range((from, Bound::Unbounded));
        let mut last = None;
        let mut is_empty = true;
        for (queue, known) in rest.by_ref().take(LIVE_SNAPSHOT_ROWS) {
            last = Some(*queue);
            if sees(&known.named.vhost) {
                let row = row(&self.picture, &self.fronts, *queue);
                writing.queue(*queue, known, row, true);
                is_empty = false;
            }
        }
        let next = rest.next().and(last);
        ((!is_empty).then(|| writing.event(self.picture.at_ms)), next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use machine::NodeId;

    use super::*;
    use crate::looks::tests::status;
    use crate::picture::Row as Told;

    fn picture(at_ms: u64, queues: &[(u64, u64)], before: Option<&Picture>) -> Arc<Picture> {
        let row = |(id, count): &(u64, u64)| Told::of(QueueId(*id), &status(*count, 0, *count, 1));
        let rows = queues.iter().map(row).collect();
        Arc::new(Picture::new(at_ms, [(NodeId(1), rows)], &BTreeMap::new(), before))
    }

    fn turn(board: &mut Board, picture: &Arc<Picture>, gone: &[u64]) -> Vec<VhostEvent> {
        let named = board.unknown(picture).into_iter().map(|id| (id, named(id.0, None)));
        let named = named.collect();
        let gone: Vec<QueueId> = gone.iter().copied().map(QueueId).collect();
        board.turn((Arc::clone(picture), Arc::default()), named, &gone)
    }

    fn named(id: u64, paused_by: Option<&str>) -> Named {
        Named {
            vhost: Arc::from(if id < 10_000_000 { "/" } else { "shop" }),
            name: Arc::from(format!("q{id}")),
            kind: "classic",
            paused_by: paused_by.map(Arc::from),
        }
    }

    fn data(event: &Bytes) -> Value {
        let text = std::str::from_utf8(event).unwrap();
        let data = text.strip_prefix("event: queues\ndata: ").unwrap();
        serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap()
    }

    #[test]
    fn only_what_changed_is_told_and_each_vhost_has_its_own_event() {
        let mut board = Board::default();
        let shop = 10_000_001;
        let first = picture(1_000, &[(1, 5), (2, 6), (shop, 7)], None);
        assert_eq!(turn(&mut board, &first, &[]), [], "nobody was told anything yet");
        let (all, next) = board.snapshot(None, |vhost| vhost == "/");
        let all = data(&all.unwrap());
        assert_eq!(
            (&all["new"], next),
            (&json!([[1, "/", "q1", "classic", null], [2, "/", "q2", "classic", null]]), None)
        );
        assert_eq!(all["changed"][1], json!([2, 6, 0, 1, 0, 0, 6, 0, 0.0, 0.0, null, null]));
        let second = picture(2_000, &[(1, 5), (2, 9), (3, 1), (shop, 8)], Some(&first));
        let told = turn(&mut board, &second, &[]);
        let vhosts: Vec<&str> = told.iter().map(|(vhost, _)| &**vhost).collect();
        assert_eq!(vhosts, ["/", "shop"]);
        let root = data(&told[0].1);
        assert_eq!(root["changed"][0], json!([2, 9, 0, 1, 0, 0, 9, 0, 3.0, 0.0, null, null]));
        assert_eq!(
            (&root["new"], &root["at"]),
            (&json!([[3, "/", "q3", "classic", null]]), &json!(2_000))
        );
        // The rate of what stands still is told as 0, then nothing more.
        let third = picture(3_000, &[(1, 5), (2, 9), (3, 1), (shop, 8)], Some(&second));
        let told = turn(&mut board, &third, &[]);
        assert_eq!(
            data(&told[0].1)["changed"],
            json!([[2, 9, 0, 1, 0, 0, 9, 0, 0.0, 0.0, null, null]])
        );
        let fourth = picture(4_000, &[(1, 5), (3, 1)], Some(&third));
        assert_eq!(board.absent(&fourth), [QueueId(2), QueueId(shop)]);
        let told = turn(&mut board, &fourth, &[shop]);
        assert_eq!(data(&told[0].1)["down"], json!([2]));
        assert_eq!(data(&told[1].1)["gone"], json!([shop]));
        assert_eq!(turn(&mut board, &fourth, &[]), [], "nothing has changed");
    }

    #[test]
    fn the_first_queue_of_an_empty_broker_is_told_to_who_listens_already() {
        let mut board = Board::default();
        let empty = picture(1_000, &[], None);
        assert_eq!(turn(&mut board, &empty, &[]), []);
        let one = picture(2_000, &[(1, 5)], Some(&empty));
        let told = turn(&mut board, &one, &[]);
        assert_eq!(data(&told[0].1)["new"], json!([[1, "/", "q1", "classic", null]]));
        let none = picture(3_000, &[], Some(&one));
        turn(&mut board, &none, &[1]);
        let again = picture(4_000, &[(2, 5)], Some(&none));
        let told = turn(&mut board, &again, &[]);
        assert_eq!(
            data(&told[0].1)["new"],
            json!([[2, "/", "q2", "classic", null]]),
            "nor are all gone a beginning"
        );
    }

    #[test]
    fn more_changes_than_a_turn_has_room_for_are_all_told_in_turns() {
        let mut board = Board::default();
        let count = LIVE_ROWS_MAX as u64 + 10;
        let at = |more: u64| (0..count).map(|id| (id, 5 + more)).collect::<Vec<_>>();
        let first = picture(1_000, &at(0), None);
        turn(&mut board, &first, &[]);
        let second = picture(2_000, &at(1), None);
        let mut told = BTreeSet::new();
        let mut turns = 0;
        while told.len() < count as usize {
            turns += 1;
            for (_, event) in turn(&mut board, &second, &[]) {
                let rows = data(&event)["changed"].as_array().unwrap().clone();
                assert!(rows.len() <= LIVE_ROWS_MAX);
                told.extend(rows.iter().map(|row| row[0].as_u64().unwrap()));
            }
            assert!(turns <= 2, "told {} of {count}", told.len());
        }
        assert_eq!(turn(&mut board, &second, &[]), [], "all has been told");
    }

    #[test]
    fn who_paused_a_queue_and_how_old_its_oldest_message_is_are_told_when_they_change() {
        let mut board = Board::default();
        let first = picture(1_000, &[(1, 5), (2, 6)], None);
        turn(&mut board, &first, &[]);
        let row = Told::of(QueueId(1), &status(5, 0, 5, 1));
        let waiting =
            Arc::new(Picture::new(2_000, [(NodeId(1), vec![row])], &BTreeMap::new(), None));
        let front = crate::fronts::Row { queue: 1, oldest_ready_ms: Some(700), ready_bytes: None };
        let fronts = Arc::new(Merged::new([front], &BTreeMap::new()));
        let paused = vec![(QueueId(1), named(1, Some("ann")))];
        let told = board.turn((waiting, fronts), paused, &[]);
        let told = data(&told[0].1);
        assert_eq!(told["new"], json!([[1, "/", "q1", "classic", "ann"]]));
        let numbers = json!([[1, 5, 0, 1, 0, 0, 5, 0, 0.0, 0.0, 700, null]]);
        assert_eq!((&told["changed"], &told["down"]), (&numbers, &json!([2])));
    }

    #[test]
    fn a_snapshot_comes_in_parts() {
        let mut board = Board::default();
        let count = LIVE_SNAPSHOT_ROWS as u64 * 2 + 1;
        let all = picture(1_000, &(0..count).map(|id| (id, 1)).collect::<Vec<_>>(), None);
        turn(&mut board, &all, &[]);
        let (mut behind, mut found, mut parts) = (None, 0, 0);
        loop {
            let (part, next) = board.snapshot(behind, |_| true);
            found += data(&part.unwrap())["new"].as_array().unwrap().len();
            parts += 1;
            behind = next;
            if behind.is_none() {
                break;
            }
        }
        assert_eq!((found as u64, parts), (count, 3));
        assert_eq!(board.snapshot(None, |_| false).0, None, "nothing for who sees nothing");
    }
}
