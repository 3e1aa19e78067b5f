//! The pure parts of the Redis sources: the names of keys, the fields of a job, scripts, and what errors mean.
//!
//! A stream's job is one entry. Every field is optional: `id`, `type`, `key`, `content_type`, `headers` (a JSON object
//! of texts), `body`, `attempt`, `timeout_ms`, `attempts_max`, `then`, `batch` (JSON), `published_ms`. A field with
//! another name is a header. A list's job is one element: an envelope (see [`envelope`](super::envelope)), or any
//! other bytes, which are then the body.
//!
//! | Key | What |
//! | --- | --- |
//! | `NAME` | the stream or the list |
//! | `NAME:delayed` | a sorted set of jobs that wait, by their time in milliseconds; a member is a MessagePack array: a word that makes it unique, then the fields, or the element |
//! | `NAME:dead` | a stream of dead jobs: the job's fields, or `element`; and `dead_cause`, `dead_why`, `dead_ms` |
//! | `NAME:answer:WORKER` | what a worker's last settlements came to: so they are never carried out twice |
//! | `NAME:workers` | lists: a sorted set of workers, by their last sign of life |
//! | `NAME:taken:WORKER` | lists: what a worker has in hand |
//! | `NAME:deliveries` | lists: how often a job was in the hands of a worker that died |
//!
//! Redis is as safe as its `appendfsync`: with `always`, a job that was published or settled survives a power cut;
//! with `everysec`, the last second of both may be undone (jobs lost, or repeated); without `appendonly`, all since
//! the last snapshot. In a Redis Cluster, all keys of a queue must lie together: write its name in braces, `{NAME}`.

pub mod fields;
pub mod operations;
pub mod scripts;

/// A queue's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub queue: String,
    pub delayed: String,
    pub dead: String,
    pub workers: String,
    pub deliveries: String,
    /// Of this worker.
    pub answer: String,
    /// Of this worker.
    pub taken: String,
    /// What `taken` of any worker begins with.
    pub taken_prefix: String,
}

impl Keys {
    /// The keys of a queue, for one worker.
    pub fn new(queue: &str, worker: &str) -> Self {
        Self {
            queue: queue.to_owned(),
            delayed: delayed(queue),
            dead: dead(queue),
            workers: format!("{queue}:workers"),
            deliveries: format!("{queue}:deliveries"),
            answer: format!("{queue}:answer:{worker}"),
            taken: format!("{queue}:taken:{worker}"),
            taken_prefix: format!("{queue}:taken:"),
        }
    }
}

/// Where a queue's delayed jobs wait.
pub fn delayed(queue: &str) -> String {
    format!("{queue}:delayed")
}

/// Where a queue's dead jobs lie.
pub fn dead(queue: &str) -> String {
    format!("{queue}:dead")
}

/// What an error means that Redis answers with: none, it may pass.
pub fn setup_problem(code: &str, text: &str) -> Option<&'static str> {
    match code {
        "WRONGPASS" | "NOAUTH" => {
            Some("Redis refuses the user or the password: correct `username` and `password`")
        }
        "NOPERM" => Some(
            "the Redis user may not do this: give it the commands and keys that this queue needs",
        ),
        "WRONGTYPE" => Some(
            "the key exists and is of another type: choose another name, or the other kind of source",
        ),
        "ERR" if text.contains("unknown command") => {
            Some("this Redis is too old: version 6.2 is needed")
        }
        _ => None,
    }
}

/// The time in an entry's id, in milliseconds since 1970.
pub fn entry_ms(id: &str) -> Option<u64> {
    id.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_queue_begin_with_its_name() {
        let keys = Keys::new("{mail}", "w1");
        for key in [keys.delayed, keys.dead, keys.workers, keys.deliveries, keys.answer, keys.taken]
        {
            assert!(key.starts_with("{mail}:"), "{key}");
        }
    }

    #[test]
    fn what_somebody_must_mend_is_told_from_what_passes() {
        for (code, text) in
            [("WRONGPASS", ""), ("NOPERM", ""), ("WRONGTYPE", ""), ("ERR", "unknown command")]
        {
            assert!(setup_problem(code, text).is_some(), "{code}");
        }
        for code in ["LOADING", "READONLY", "OOM", "NOGROUP", "MISCONF", "BUSY", "ERR"] {
            assert!(setup_problem(code, "").is_none(), "{code}");
        }
    }
}
