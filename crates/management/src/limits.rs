//! Bounds of the API.

use std::time::Duration;

/// Open connections. One above them is closed at once.
pub const CONNECTIONS_MAX: usize = 256;

/// Bytes of a request's line and headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bytes of a request's body: the largest message (`message_bytes_max`), in base64.
pub const BODY_BYTES_MAX: usize = 48 << 20;

/// The same of definitions: a large broker's.
pub const DEFINITIONS_BYTES_MAX: usize = 64 << 20;

/// The same of a request about a lock: its value (4 KiB), each byte as JSON's longest escape, and an owner.
pub const LOCK_BODY_BYTES_MAX: usize = 32 << 10;

/// Requests of known users that are worked on at a time: so many that only ask, and so many that change something.
/// Others wait for their turn. Who only asks does not wait for publishers that the node holds back.
pub const REQUESTS_AT_ONCE: usize = 16;

/// Requests that wait for a lock or its value, of all clients of a node. One above them is refused at once: the other
/// connections are for who asks something else.
pub const LOCK_WAITS_MAX: usize = 128;

/// How long one of them may wait, in milliseconds.
pub const LOCK_WAIT_MS_MAX: u32 = 60_000;

/// How long other nodes may take to say who waits for a lock.
pub const LOCK_LINE_WAIT: Duration = Duration::from_secs(1);

/// Consumers of lists get their partitions of so many partitioned queues and streams.
pub const ASSIGNED_QUEUES_MAX: usize = 100;

/// How long the leaders of all these partitions may take to say so: another node may wait for the answer.
pub const ASSIGNED_WAIT: Duration = Duration::from_secs(3);

/// Locks of a vhost that one list shows.
pub const LOCKS_SHOWN_MAX: usize = 100_000;

/// Passwords of new users that are hashed at a time: each takes 19 MiB and tens of milliseconds.
pub const HASHES_AT_ONCE: usize = 2;

/// How long a client may take for the head of a request. A connection that asks nothing for so long is closed.
pub const HEAD_WAIT: Duration = Duration::from_secs(60);

/// How long a client may take for a body.
pub const BODY_WAIT: Duration = Duration::from_secs(60);

/// How long a client is waited for that does not take its answer, or takes less than 4 KiB a second of it.
pub const READER_WAIT: Duration = Duration::from_secs(30);

/// How long all leaders together may take to describe the queues of one answer. Those that have not are shown as `down`.
pub const DESCRIBE_WAIT: Duration = Duration::from_secs(10);

/// How long another node may take to answer what only it knows. What it has is left out then.
pub const NEIGHBOUR_WAIT: Duration = Duration::from_secs(5);

/// Questions of other nodes that are worked on at a time.
pub const NEIGHBOURS_AT_ONCE: usize = 4;

/// How often nodes tell each other how many connections and channels there are, while a limit needs it.
pub const CENSUS_EVERY: Duration = Duration::from_secs(1);

/// Bytes of a name in a path: what AMQP's short strings hold.
pub const NAME_BYTES_MAX: usize = 255;

/// How long the catalog may take to change: longer than an election.
pub const CHANGE_WAIT: Duration = Duration::from_secs(30);

/// Items of a page, as in RabbitMQ.
pub const PAGE_SIZE_MAX: usize = 500;

/// Items of a page, if nobody says how many.
pub const PAGE_SIZE: usize = 100;

/// Bytes of a pattern that names are looked for by.
pub const PATTERN_BYTES_MAX: usize = 1000;

/// Bytes that such a pattern may take when it is compiled.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// Messages of one `get`.
pub const GET_MESSAGES_MAX: u64 = 10_000;

/// Bytes of the payloads that one `get` answers with. What follows stays in the queue.
pub const GET_BYTES_MAX: usize = 64 << 20;

/// Messages that are shown by one `messages`, if nobody says how many, and at most.
pub const PEEKED_MESSAGES: u64 = 100;
pub const PEEKED_MESSAGES_MAX: u64 = 1_000;

/// Bytes of each payload that it shows, if nobody says how many.
pub const PEEKED_PAYLOAD_BYTES: u64 = 50_000;

/// How long one `messages` may look for where to begin, or for messages with a header, and how many questions and messages
/// that may take.
pub const PEEK_WAIT: Duration = Duration::from_secs(5);
pub const PEEK_QUESTIONS_MAX: u32 = 1_000;
pub const PEEK_LOOKED_AT_MAX: usize = 10_000;

/// Positions that one retry may name.
pub const RETRIED_POSITIONS_MAX: usize = 1_000;

/// Retries that are over and still told of.
pub const RETRIES_KEPT: usize = 50;

/// How long the request that begins a retry waits for its end, before it answers how far it has come.
pub const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Dead letters of a queue that are looked at to count why they died, and how long that may take.
pub const DEATHS_SEEN_MAX: u64 = 10_000;
pub const DEATHS_WAIT: Duration = Duration::from_secs(5);

/// Groups of dead letters, by queue and reason, that are told apart.
pub const DEATHS_GROUPS_MAX: usize = 100;

/// The same of all queues together, within the same time: queues, messages and groups; and how many queues are looked at at
/// a time, a page of messages each.
pub const DEATHS_QUEUES_MAX: usize = 500;
pub const DEATHS_EVERYWHERE_SEEN_MAX: u64 = 50_000;
pub const DEATHS_EVERYWHERE_GROUPS_MAX: usize = 1_000;
pub const DEATHS_AT_ONCE: usize = 4;

/// Of those who hold shown messages so many are asked for who they are.
pub const HOLDERS_MAX: usize = 20;

/// Queues whose last counts are kept for rates.
pub const RATED_QUEUES_MAX: usize = 10_000;

/// The same of connections, of consumers and of exchanges: about 200 bytes each.
pub const RATED_CLIENTS_MAX: usize = 20_000;

/// Sessions of browsers: of a node, and of one user there. A new one that finds no room ends the one that was unused for
/// longest.
pub const SESSIONS_MAX: usize = 1_000;
pub const SESSIONS_OF_USER_MAX: usize = 20;

/// A session that is unused for so long ends, and so does one that has been open for so long.
pub const SESSION_IDLE: Duration = Duration::from_secs(3600);
pub const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);

/// Bytes of what a browser logs in with: a name and a password, or a token, in JSON.
pub const LOGIN_BYTES_MAX: usize = 2 * oauth::limits::TOKEN_BYTES_MAX;

/// Between two counts that a rate is made of, in milliseconds, at least.
pub const RATE_SPAN_MS: u64 = 1000;

/// Queues whose leaders are asked what they would do with a message that is explained.
pub const EXPLAINED_QUEUES_MAX: usize = 100;

/// Queues that are named which a policy would change.
pub const FORESEEN_QUEUES_MAX: usize = 100;

/// Queues up to which each leader is asked about each of them: the answer is of this moment. For more, a picture of all
/// queues is made.
pub const ASKED_QUEUES_MAX: usize = 1_000;

/// Connections of a node up to which each is asked for every list. Of more, what they said at most a second ago is shown.
pub const ASKED_CONNECTIONS_MAX: usize = 1_000;

/// Connections of a list that are shown at a time: between them publishers get their turns.
pub const SHOWN_CONNECTIONS_AT_ONCE: usize = 200;

/// Queues whose books one answer shows: those first whose books are wrong.
pub const RECONCILED_QUEUES_MAX: usize = 10_000;

/// Queues of a list that are looked up in the catalog at a time.
pub const SHOWN_QUEUES_AT_ONCE: usize = 500;

/// How old the picture of all queues may be, and what many connections said, in milliseconds.
pub const PICTURE_MS: u64 = 1000;

/// Between two pictures that rates are made of, in milliseconds, at most.
pub const RATE_SPAN_MAX_MS: u64 = 120_000;

/// How often a node looks at what it leads, for the history and problems.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Who asks for problems has a look taken, if the last is older.
pub const LOOK_MS_MIN: u64 = 1000;

/// Queues whose history a node keeps: those with most going on. Each takes at most 26 KiB, whatever happens in it, so all
/// of them take at most 26 MiB, also of a node that leads 10,000.
pub const HISTORY_QUEUES_MAX: usize = 1_000;

/// Queues that somebody asked for, which are kept before others, and for how long after that, in seconds.
pub const HISTORY_WATCHED_MAX: usize = 500;
pub const HISTORY_WATCHED_S: u64 = 3600;

/// How old what nodes said of fronts of queues may be before they are asked again, in milliseconds, beside the age of their
/// looks.
pub const FRONTS_MS: u64 = 5_000;

/// From this age on what nodes said of fronts is shown no more, in milliseconds: it is asked for in the background, and
/// [`NEIGHBOUR_WAIT`] is how long that may take.
pub const FRONTS_OLD_MS: u64 = 12_000;

/// How long a list waits for fronts of queues, if none are known that may be shown.
pub const FRONTS_WAIT: Duration = Duration::from_millis(500);

/// Times of each queue that say how old its oldest ready message is: 16 bytes each, of queues in which something is ready.
pub const ARRIVALS_KEPT: usize = 16;

/// Marks that a node keeps of leaders and starts, about 150 bytes each: with more the oldest go.
pub const MARKS_MAX: usize = 4_096;

/// Marks of one answer: the newest.
pub const MARKS_SHOWN_MAX: usize = 1_000;

/// Queues that a mark names of a group that got another leader.
pub const MARK_QUEUES_MAX: usize = 10;

/// Bytes of what somebody says of a deployment.
pub const MARK_TEXT_BYTES_MAX: usize = 256;

/// Queues of a list up to which their samples are shown with them.
pub const SAMPLED_QUEUES_MAX: usize = 100;

/// Live streams of a node. One above them is refused.
pub const LIVE_STREAMS_MAX: u64 = 64;

/// How often they are told what has changed.
pub const LIVE_EVERY: Duration = Duration::from_secs(1);

/// Queues that are looked at in a second for them: more are looked at less often.
pub const LIVE_QUEUES_A_SECOND: usize = 10_000;

/// Queues that have changed and are told in one turn. The others are told in the next: a turn takes about a MiB.
pub const LIVE_ROWS_MAX: usize = 20_000;

/// Queues in one part of the snapshot that a stream begins with.
pub const LIVE_SNAPSHOT_ROWS: usize = 500;

/// Turns that are kept for readers that are a little behind.
pub const LIVE_TICKS_KEPT: usize = 5;

/// Queues that a node names for one kind of problem: the worst.
pub const PROBLEMS_OF_A_KIND_MAX: usize = 100;

/// How far clocks may be apart, in milliseconds.
pub const CLOCKS_APART_MS: u64 = 2000;

/// How long a relay or a worker may take to say how it stands, and how many bytes.
pub const COMPANION_WAIT: Duration = Duration::from_secs(2);
/// How long one may take to come to rest, and to say so: longer than it lets others wait for that.
pub const COMPANION_ORDER_WAIT: Duration = Duration::from_secs(8);
pub const COMPANION_BYTES_MAX: u64 = 1 << 20;

/// How old what they said may be, in milliseconds.
pub const COMPANION_MS: u64 = 1_000;

/// Relays and workers that a node may be told of.
pub const COMPANIONS_MAX: usize = 32;

/// How long dead letters stay at their sources while a backup is cut, at most.
pub const BACKUP_HOLD: Duration = Duration::from_secs(30);

/// How long all groups together may take to be cut. The rest of [`BACKUP_HOLD`] is for nodes that heard of it late.
pub const BACKUP_CUT_WAIT: Duration = Duration::from_secs(20);

/// How often the other nodes hear that a backup is still being read. They let go of what nobody reads for two minutes.
pub const BACKUP_KEEP_EVERY: Duration = Duration::from_secs(30);

/// Bytes of a part of a backup.
pub const BACKUP_PART_BYTES: usize = 1 << 20;

/// How long a part that is not there yet is waited for before the answer says so.
pub const BACKUP_PART_WAIT: Duration = Duration::from_secs(2);

/// How long another node may take to read a part.
pub const BACKUP_NEIGHBOUR_WAIT: Duration = Duration::from_secs(30);

const _: () = assert!(ASSIGNED_WAIT.as_millis() < NEIGHBOUR_WAIT.as_millis());
const _: () = assert!(FRONTS_MS + (NEIGHBOUR_WAIT.as_millis() as u64) < FRONTS_OLD_MS);
const _: () = assert!(LOCK_WAITS_MAX < CONNECTIONS_MAX);
const _: () = assert!(SESSIONS_OF_USER_MAX < SESSIONS_MAX);
const _: () = assert!(SESSION_IDLE.as_secs() < SESSION_LIFE.as_secs());
const _: () = assert!(BACKUP_CUT_WAIT.as_millis() < BACKUP_HOLD.as_millis());
const _: () = assert!(BACKUP_PART_BYTES * 4 / 3 + 1024 < cluster::limits::ANSWER_BYTES_MAX);
