//! What all nodes say is wrong, and how it is shown.

use machine::{Catalog, NodeId};
use serde_json::{Value, json};

use super::{Listed, Problem, listed};
use crate::access::Sight;

/// What all nodes say is wrong.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) told: Vec<(NodeId, Problem)>,
    /// Nodes that did not answer, and could be reached.
    pub(crate) silent: Vec<String>,
    pub(crate) left_out: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

impl Gathered {
    /// For who sees so much.
    pub(crate) fn shown(&self, catalog: &Catalog, sight: &Sight) -> Value {
        let Self { told, silent, left_out, at_ms } = self;
        let now_s = i64::try_from(at_ms / 1000).unwrap_or(i64::MAX);
        let Listed { verdict, problems } = listed(catalog, sight, now_s, told.clone());
        json!({ "verdict": verdict, "problems": problems, "left_out": left_out, "silent": silent })
    }
}
