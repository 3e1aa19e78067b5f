//! The one index a relay needs: pending rows in their order, and nothing of their content.

use super::{Found, Plan};
use crate::admin::finding::Finding;
use crate::admin::shape::{Shape, index_columns};
use crate::mapping::{Mapping, TableName};
use crate::sql::quoted;

/// PostgreSQL's longest name.
const NAME_BYTES_MAX: usize = 63;

/// `base` and `suffix` as one name that PostgreSQL does not cut.
pub(super) fn name_with(base: &str, suffix: &str) -> String {
    let mut end = base.len().min(NAME_BYTES_MAX.saturating_sub(suffix.len()));
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &base[..end])
}

/// What stands behind the table's name: columns and predicate.
fn body(mapping: &Mapping) -> String {
    let columns: Vec<String> = index_columns(mapping).iter().map(|name| quoted(name)).collect();
    let filter = match (&mapping.pending_where, &mapping.processed) {
        (Some(condition), _) => format!(" WHERE ({condition}\n)"),
        (None, Some(processed)) => format!(" WHERE {} IS NULL", quoted(processed)),
        (None, None) => String::new(),
    };
    format!("({}){filter}", columns.join(", "))
}

/// The statement that a person would type.
pub(crate) fn recommended(mapping: &Mapping, shape: &Shape) -> String {
    let name = quoted(&own_name(&shape.name, Some(shape)));
    format!("CREATE INDEX CONCURRENTLY {name} ON {} {}", shape.table().quoted(), body(mapping))
}

/// A name that no index has which is of use: an outbox whose order has changed keeps its old index until it is dropped.
fn own_name(table: &str, shape: Option<&Shape>) -> String {
    let indexes = shape.map_or(&[][..], |shape| &shape.indexes);
    let first = name_with(table, "_pending");
    let others = (2..100).map(|number| name_with(table, &format!("_pending_{number}")));
    let is_free =
        |name: &String| indexes.iter().all(|index| index.name != *name || !index.is_valid);
    std::iter::once(first.clone()).chain(others).find(is_free).unwrap_or(first)
}

/// Whether a relay of this mapping needs an index at all.
pub(crate) fn is_needed(mapping: &Mapping) -> bool {
    !index_columns(mapping).is_empty()
}

pub(super) fn plan(mapping: &Mapping, found: &Found, table: &TableName, plan: &mut Plan) {
    if !is_needed(mapping) {
        plan.tell(Finding::ok("index", "rows are deleted and have no order: no index is needed"));
        return;
    }
    let own = own_name(&table.name, found.table.as_ref());
    let why = "finds pending rows in order; without the content, so that no INSERT can fail by it";
    let Some(shape) = &found.table else {
        plan.step(
            why,
            format!("CREATE INDEX {} ON {} {}", quoted(&own), table.quoted(), body(mapping)),
        );
        return;
    };
    if let Some(index) = shape.serving_index(mapping) {
        plan.tell(Finding::ok("index", format!("{} finds pending rows in order", index.name)));
        return;
    }
    let is_begun = shape.indexes.iter().any(|index| index.name == own);
    if is_begun {
        drop_invalid(shape, &own, plan);
    }
    match (found.server.has_rows, shape.is_partitioned()) {
        (false, _) => {
            plan.step(
                why,
                format!("CREATE INDEX {} ON {} {}", quoted(&own), table.quoted(), body(mapping)),
            );
        }
        (true, false) => plan.alone(why, recommended(mapping, shape)),
        (true, true) => in_partitions(mapping, shape, &own, plan),
    }
}

/// What an interrupted CREATE INDEX CONCURRENTLY has left.
fn drop_invalid(shape: &Shape, own: &str, plan: &mut Plan) {
    let schema = quoted(&shape.schema);
    let own = quoted(own);
    let how = if shape.is_partitioned() { "" } else { "CONCURRENTLY " };
    plan.alone(
        "an index that was begun and not finished",
        format!("DROP INDEX {how}{schema}.{own}"),
    );
}

/// CONCURRENTLY does not work on a partitioned table: each partition gets its own, and then they are joined.
fn in_partitions(mapping: &Mapping, shape: &Shape, own: &str, plan: &mut Plan) {
    let body = body(mapping);
    let schema = quoted(&shape.schema);
    plan.alone(
        "the index of the whole table, of which those of the partitions become parts",
        format!("CREATE INDEX {} ON ONLY {} {body}", quoted(own), shape.table().quoted()),
    );
    for leaf in &shape.leaves {
        let part = quoted(&name_with(&leaf.name, "_pending"));
        let leaf_schema = quoted(&leaf.schema);
        plan.alone(
            format!("its part in {}", leaf.name),
            format!(
                "CREATE INDEX CONCURRENTLY IF NOT EXISTS {part} ON {} {body}",
                leaf.table().quoted()
            ),
        );
        plan.alone(
            "joined",
            format!("ALTER INDEX {schema}.{} ATTACH PARTITION {leaf_schema}.{part}", quoted(own)),
        );
    }
}
