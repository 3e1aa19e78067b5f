//! What is read before it is judged. The field names are those of the statements under `sql/admin`.

use serde::Deserialize;

use crate::admin::shape::Shape;

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub server: Server,
    /// None: there is no such table.
    pub shape: Option<Shape>,
    pub privileges: Option<Privileges>,
    /// Only read where an index holds the content.
    pub content: Option<Content>,
    pub pending: Option<Pending>,
    /// Ids that were found twice among those looked at.
    pub duplicates: Vec<String>,
    /// Rows in the default partition, up to a bound.
    pub default_rows: i64,
    pub failures: Vec<Failure>,
    pub triggers: Vec<Trigger>,
    pub identity: Option<Identity>,
    pub holders: Vec<Holder>,
    pub vacuums: Vec<Vacuum>,
    pub slots: Vec<Slot>,
    pub known_slots: Vec<KnownSlot>,
    /// The database's clock less ours, and the half of the time the question took, in seconds.
    pub clock: Option<(f64, f64)>,
    /// Our clock, in seconds since 1970.
    pub now_seconds: i64,
    /// What could not be read, and why.
    pub unread: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Server {
    pub version: i32,
    pub wal_level: String,
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: String,
    pub autovacuum: bool,
    pub is_standby: bool,
    /// None: without a bound.
    pub slot_wal_keep_bytes: Option<i64>,
    pub transaction_timeout_ms: i64,
    pub connections_max: i64,
    pub connections: i64,
    pub slots_max: i64,
    pub role: String,
    pub is_superuser: bool,
    pub may_replicate: bool,
    pub bypasses_row_security: bool,
    pub uses_tls: bool,
    pub is_remote: bool,
    /// Connections of relays, as their application_name says.
    pub relays: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Privileges {
    pub may_select: bool,
    /// UPDATE of some column: FOR UPDATE asks for it.
    pub may_lock: bool,
    pub may_delete: bool,
    /// UPDATE of the columns that the relay writes.
    pub may_mark: bool,
    /// 2: both are there.
    pub companion_tables: i64,
    pub may_remember: bool,
}

/// The largest content among the rows looked at, as it is stored (compressed where it is).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Content {
    pub id: String,
    pub bytes: i64,
    pub rows: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Pending {
    pub rows: i64,
    pub oldest_seconds: Option<f64>,
}

/// Failures with one reason that wait, or are dead.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Failure {
    pub reason: String,
    pub is_dead: bool,
    pub count: i64,
    pub attempts_max: i32,
    pub next_seconds: Option<f64>,
    pub oldest_seconds: Option<f64>,
    pub error: String,
    pub example: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Trigger {
    pub name: String,
    pub function: String,
    pub is_per_row: bool,
    pub fires_on_mark: bool,
    pub notifies: bool,
}

/// Whether UPDATE and DELETE can be published for the table, and by which publications they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Identity {
    pub is_missing: bool,
    pub publications: Vec<String>,
}

/// Something that keeps dead rows from being removed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Holder {
    pub kind: String,
    pub name: String,
    pub who: String,
    pub application: String,
    pub state: String,
    pub seconds: Option<f64>,
    pub transactions: i64,
    pub detail: String,
    /// A session of another role, of which this one may see little: not for how long it lasts.
    #[serde(default)]
    pub is_masked: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Vacuum {
    pub name: String,
    pub live: i64,
    pub dead: i64,
    /// Since the last one. None: never.
    pub seconds: Option<f64>,
    pub is_off: bool,
    pub updated: i64,
    pub hot: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Slot {
    pub name: String,
    pub kind: String,
    pub plugin: String,
    pub database: String,
    pub is_active: bool,
    pub wal_status: String,
    pub kept_bytes: Option<i64>,
    pub lag_bytes: Option<i64>,
    pub safe_bytes: Option<i64>,
}

/// A slot that a relay has used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct KnownSlot {
    pub name: String,
    pub outbox: String,
    pub publication: String,
    pub is_there: bool,
    pub is_active: bool,
    pub wal_status: String,
    pub lag_bytes: Option<i64>,
    pub last_commit_seconds: Option<f64>,
    pub has_publication: bool,
    /// The table was not read to its end yet: until then the slot may not be there.
    pub is_begun: bool,
}
