//! Transactions: publishes and acks that are done together at `tx.commit`.
//!
//! A commit is one atomic append for each group it touches. Over several groups it is not atomic:
//! AMQP 0-9-1 promises no more than that for several queues, and RabbitMQ not even for one.

use amqp::{Method, ReplyCode, tx};
use bytes::BytesMut;
use cluster::{Held, Request};
use machine::{Batch, GroupId, Outcome, QueueId, Ranges};

use crate::attributes::Asked;
use crate::capacity::{Guarded, Then};
use crate::channel::store::guarded;
use crate::channel::unacked::{Run, Unacked};
use crate::channel::{Channel, Doing, Mode};
use crate::connection::tickets::Waiting;
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, precondition, unknown_tag};
use crate::limits;
use crate::route_cache::Route;

/// What a channel has gathered since the last commit or rollback.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    batches: Vec<(GroupId, Batch)>,
    /// `basic.return`s of the publishes, encoded.
    pub(crate) returns: BytesMut,
    settled: Vec<(Run, Outcome)>,
    /// Messages whose queues are asked for room at the commit.
    guarded: Vec<(GroupId, Guarded)>,
    guarded_bytes: usize,
    /// Of the publishes, as told to the trunk.
    pub(crate) bytes: usize,
}

impl Tx {
    pub(crate) fn store(
        &mut self,
        route: &Route,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
        lanes: &mut Vec<QueueId>,
    ) -> Result<(), Failure> {
        if let Some(key) = asked.cancels {
            for (group, queues) in route.queues() {
                self.batch(group).cancel_delayed(&queues, key);
            }
        } else {
            route.parts(asked, lanes, |group, attributes, queues| {
                self.batch(group).enqueue_with(queues, attributes, head, body);
            });
            for target in route.guarded() {
                let (lane, attributes) = (asked.lane(target), asked.attributes(target.dedups));
                let message = guarded(lane, attributes, head, body, Then::Append(None));
                self.guarded_bytes += message.bytes();
                self.guarded.push((target.group, message));
            }
        }
        let bytes: usize = self.batches.iter().map(|(_, batch)| batch.bytes()).sum();
        self.bytes = bytes + self.guarded_bytes + self.returns.len();
        if self.bytes > limits::TX_BYTES_MAX {
            return Err(too_large("bytes", limits::TX_BYTES_MAX));
        }
        Ok(())
    }

    /// Acks and rejects in a transaction: the deliveries are not out any more, unless it is rolled back.
    pub(crate) fn settle(
        &mut self,
        unacked: &mut Unacked,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        if self.settled.len() >= limits::TX_SETTLES_MAX {
            return Err(too_large("acks", limits::TX_SETTLES_MAX));
        }
        let settled = &mut self.settled;
        match (tag, multiple) {
            (0, true) => unacked.take_all(|run| settled.push((run, outcome))),
            (_, true) => {
                if !unacked.take_through(tag, |run| settled.push((run, outcome))) {
                    return Err(unknown_tag(tag));
                }
            }
            (_, false) => {
                let run = unacked.take(tag).ok_or_else(|| unknown_tag(tag))?;
                settled.push((run, outcome));
            }
        }
        Ok(())
    }

    fn batch(&mut self, group: GroupId) -> &mut Batch {
        let place = match self.batches.iter().position(|(known, _)| *known == group) {
            Some(place) => place,
            None => {
                self.batches.push((group, Batch::new()));
                self.batches.len() - 1
            }
        };
        &mut self.batches[place].1
    }
}

fn too_large(what: &str, max: usize) -> Failure {
    let text = format!("a transaction holds more than {max} {what}");
    Failure::connection(ReplyCode::ResourceError, text)
}

/// Final outcomes of one group: what the log is told, and who held the messages.
#[derive(Debug, Default)]
struct GroupSettles {
    logged: Vec<(QueueId, Outcome, Ranges)>,
    held: Vec<Held>,
}

impl GroupSettles {
    fn add(&mut self, trunk: &Trunk, run: &Run, outcome: Outcome) {
        let range = run.first_seq..run.first_seq + u64::from(run.count);
        let source = run.source;
        let same = |(queue, known, _): &&mut (QueueId, Outcome, Ranges)| {
            *queue == source.queue && *known == outcome
        };
        match self.logged.iter_mut().find(same) {
            Some((_, _, ranges)) => _ = ranges.insert(range.clone()),
            None => self.logged.push((source.queue, outcome, Ranges::from(range.clone()))),
        }
        let consumer = trunk.consumer_id(source.consumer);
        let same = |held: &&mut Held| {
            (held.queue, held.consumer, held.outcome) == (source.queue, consumer, outcome)
        };
        match self.held.iter_mut().find(same) {
            Some(held) => _ = held.ranges.insert(range),
            None => self.held.push(Held {
                queue: source.queue,
                consumer,
                ranges: Ranges::from(range),
                outcome,
                // Its credit is given when the step ends, like any other.
                credit: 0,
            }),
        }
    }
}

impl Channel {
    pub(crate) fn tx_select(&mut self, trunk: &Trunk, turn: &mut Turn<'_>) -> Result<(), Failure> {
        match self.mode {
            Mode::Plain => self.mode = Mode::Tx(Box::default()),
            Mode::Tx(_) => {}
            Mode::Confirm(_) => {
                let text = "cannot switch from confirm to tx mode";
                return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
            }
        }
        trunk.send(turn, self.at.number, &Method::TxSelectOk(tx::SelectOk));
        Ok(())
    }

    pub(crate) fn tx_rollback(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
    ) -> Result<(), Failure> {
        self.transaction()?;
        self.roll_back(trunk);
        trunk.send(turn, self.at.number, &Method::TxRollbackOk(tx::RollbackOk));
        Ok(())
    }

    /// Forgets what the transaction gathered, also if it is being committed and waits to be let in: its acks
    /// are undone, what they were for is out again.
    pub(crate) fn roll_back(&mut self, trunk: &mut Trunk) {
        let gathered = match (&mut self.mode, self.doing.take()) {
            (_, Some(Doing::Admit { tx, .. })) => *tx,
            (Mode::Tx(tx), doing) => {
                self.doing = doing;
                std::mem::take(&mut **tx)
            }
            (Mode::Plain | Mode::Confirm(_), doing) => {
                self.doing = doing;
                return;
            }
        };
        trunk.tx_bytes -= gathered.bytes;
        for (run, _) in gathered.settled {
            self.unacked.give_back(run);
        }
    }

    pub(crate) fn tx_commit(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
    ) -> Result<(), Failure> {
        let mut tx = std::mem::take(&mut **self.transaction()?);
        let asked = std::mem::take(&mut tx.guarded);
        if asked.is_empty() {
            return self.commit(trunk, turn, tx, false);
        }
        let unanswered = asked.len();
        for (group, message) in asked {
            trunk.guards.add(group, Guarded { then: Then::Commit(self.at), ..message });
        }
        self.doing = Some(Doing::Admit { tx: Box::new(tx), unanswered, is_partial: false });
        Ok(())
    }

    /// A queue takes one of the transaction's messages, or does not. Gives whether nothing more is waited for.
    pub(crate) fn take_admitted(&mut self, group: GroupId, message: Option<&Guarded>) -> bool {
        let Some(Doing::Admit { tx, unanswered, is_partial }) = &mut self.doing else {
            return false;
        };
        match message {
            Some(Guarded { lane, attributes, head, body, .. }) => {
                tx.batch(group).enqueue_with(&[*lane], attributes, &[head], body);
            }
            None => *is_partial = true,
        }
        *unanswered -= 1;
        *unanswered == 0
    }

    /// Hands the transaction over. `is_partial`: some of its messages were refused.
    pub(crate) fn commit(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        tx: Tx,
        is_partial: bool,
    ) -> Result<(), Failure> {
        let Tx { batches, returns, settled, bytes, .. } = tx;
        // From here on they count as sent and not logged.
        trunk.tx_bytes -= bytes;
        turn.out.bytes.extend_from_slice(&returns);
        let mut groups: Vec<(GroupId, Batch, GroupSettles)> = batches
            .into_iter()
            .map(|(group, batch)| (group, batch, GroupSettles::default()))
            .collect();
        for (run, outcome) in &settled {
            trunk.counts.settled += u64::from(run.count);
            if !outcome.is_final() {
                trunk.settle(run, *outcome);
                continue;
            }
            trunk.consumers.settled(run.source.consumer, run.count);
            let group = run.source.group;
            let place = groups.iter().position(|(known, _, _)| *known == group);
            let place = place.unwrap_or_else(|| {
                groups.push((group, Batch::new(), GroupSettles::default()));
                groups.len() - 1
            });
            groups[place].2.add(trunk, run, *outcome);
        }
        let unanswered = groups.len();
        for (group, mut batch, GroupSettles { logged, held }) in groups {
            for (queue, outcome, ranges) in &logged {
                batch.settle(*queue, *outcome, ranges);
            }
            trunk.appends.flush(&mut trunk.tickets, &mut turn.out.requests);
            let bytes = batch.bytes();
            trunk.appends.unlogged_bytes += bytes;
            trunk.ask_as(turn, Waiting::Commit { at: self.at, bytes }, |ticket| Request::Append {
                group,
                ticket,
                batch,
                settles: held,
            });
        }
        match unanswered {
            0 => self.committed(trunk, turn, is_partial),
            _ => {
                self.doing = Some(Doing::Commit { unanswered, failed: false, is_partial });
                Ok(())
            }
        }
    }

    /// What could be done is done; the client is told if that was not all.
    pub(crate) fn committed(
        &mut self,
        trunk: &Trunk,
        turn: &mut Turn<'_>,
        is_partial: bool,
    ) -> Result<(), Failure> {
        if is_partial {
            return Err(precondition("partial tx completion"));
        }
        trunk.send(turn, self.at.number, &Method::TxCommitOk(tx::CommitOk));
        Ok(())
    }

    fn transaction(&mut self) -> Result<&mut Box<Tx>, Failure> {
        match &mut self.mode {
            Mode::Tx(tx) => Ok(tx),
            Mode::Plain | Mode::Confirm(_) => {
                let text = "channel is not transactional";
                Err(Failure::channel(ReplyCode::PreconditionFailed, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::unacked::Source;
    use machine::Target;

    const GROUP: GroupId = GroupId(1);

    #[test]
    fn a_transaction_holds_only_so_many_bytes() {
        let plain = Target::plain(QueueId(7), GROUP);
        for target in [plain, Target { is_guarded: true, ..plain }] {
            let route = Route::of(&[target]);
            let body = vec![0; limits::TX_BYTES_MAX / 2];
            let mut tx = Tx::default();
            let mut store =
                || tx.store(&route, &Asked::default(), &[b"head"], &body, &mut Vec::new());
            store().unwrap();
            assert_eq!(store().unwrap_err().error.code, ReplyCode::ResourceError);
        }
    }

    #[test]
    fn a_transaction_holds_only_so_many_acks() {
        let mut tx = Tx::default();
        let mut unacked = Unacked::default();
        let source = Source { group: GROUP, queue: QueueId(7), consumer: 1 };
        let count = u32::try_from(limits::TX_SETTLES_MAX).unwrap() + 1;
        unacked.add(source, 1, count);
        for tag in 1..u64::from(count) {
            tx.settle(&mut unacked, tag, false, Outcome::Done).unwrap();
        }
        let refused = tx.settle(&mut unacked, count.into(), false, Outcome::Done).unwrap_err();
        assert_eq!(refused.error.code, ReplyCode::ResourceError);
    }
}
