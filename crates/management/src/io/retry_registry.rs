//! The retries of dead letters that this node runs, and the last that it ran.

use std::collections::BTreeMap;

use broker::dead_letter::retry::{Progress, State};
use machine::NodeId;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limits::RETRIES_KEPT;
use crate::node::name_of;
use crate::routes::retries::progressed;

/// Those of this node.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) last: u64,
    pub(super) all: BTreeMap<u64, Entry>,
}

/// One retry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) vhost: String,
    pub(super) queue: String,
    /// What does not change.
    pub(super) plan: Map<String, Value>,
    pub(super) started_ms: u64,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) task: JoinHandle<()>,
}

impl Entry {
    pub(super) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    pub(super) fn shown(&self, node: NodeId, number: u64) -> Value {
        let mut fields = self.plan.clone();
        fields.insert("id".to_owned(), format!("{}-{number}", node.0).into());
        fields.insert("node".to_owned(), name_of(node).into());
        fields.insert("started_at".to_owned(), self.started_ms.into());
        let mut progress = self.progress.borrow().clone();
        if !self.is_running() && progress.state == State::Running {
            // The node stopped before it could say so.
            progress.state = State::Stopped;
        }
        fields.extend(progressed(&progress));
        Value::Object(fields)
    }
}

impl Registry {
    pub(super) fn running(&self) -> usize {
        self.all.values().filter(|entry| entry.is_running()).count()
    }

    /// Forgets the oldest of those that are over.
    pub(super) fn forget_old(&mut self) {
        let over = self.all.iter().filter(|(_, entry)| !entry.is_running());
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        for number in over.iter().take(over.len().saturating_sub(RETRIES_KEPT)) {
            self.all.remove(number);
        }
    }
}
