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
    let filter = match &mapping.processed {
        Some(processed) => format!(" WHERE {} IS NULL", quoted(processed)),
        None => String::new(),
    };
    format!("({}){filter}", columns.join(", "))
}

/// The statement that a person would type.
pub(crate) fn recommended(mapping: &Mapping, table: &TableName) -> String {
    let name = quoted(&name_with(&table.name, "_pending"));
    format!("CREATE INDEX CONCURRENTLY {name} ON {} {}", table.quoted(), body(mapping))
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
    let own = name_with(&table.name, "_pending");
    let why = "finds pending rows in order; without the content, so that no INSERT can fail by it";
    let Some(shape) = &found.table else {
        plan.step(why, format!("CREATE INDEX {} ON {} {}", quoted(&own), table.quoted(), body(mapping)));
        return;
    };
    if let Some(index) = shape.serving_index(mapping) {
        plan.tell(Finding::ok("index", format!("{} finds pending rows in order", index.name)));
        return;
    }
    let taken = shape.indexes.iter().find(|index| index.name == own);
    if taken.is_some_and(|index| index.is_valid) {
        plan.tell(Finding::fail(
            "index",
            format!("{own} is there and is another index: {}", taken.map_or("", |index| index.definition.as_str())),
            format!("Drop or rename it, or make one by hand: {}", recommended(mapping, table)),
        ));
        return;
    }
    if taken.is_some() {
        drop_invalid(shape, &own, plan);
    }
    match (found.server.has_rows, shape.is_partitioned()) {
        (false, _) => {
            plan.step(why, format!("CREATE INDEX {} ON {} {}", quoted(&own), table.quoted(), body(mapping)));
        }
        (true, false) => plan.alone(why, recommended(mapping, table)),
        (true, true) => in_partitions(mapping, shape, &own, plan),
    }
}

/// What an interrupted CREATE INDEX CONCURRENTLY has left.
fn drop_invalid(shape: &Shape, own: &str, plan: &mut Plan) {
    let schema = quoted(&shape.schema);
    let own = quoted(own);
    let how = if shape.is_partitioned() { "" } else { "CONCURRENTLY " };
    plan.alone("an index that was begun and not finished", format!("DROP INDEX {how}{schema}.{own}"));
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
            format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS {part} ON {} {body}", leaf.table().quoted()),
        );
        plan.alone(
            "joined",
            format!("ALTER INDEX {schema}.{} ATTACH PARTITION {leaf_schema}.{part}", quoted(own)),
        );
    }
}
