//! Every bound of a session, with its unit. What an operator may lower is also a field of `Config`.

use std::time::Duration;

/// From the accepted socket to `connection.open-ok`, whatever is sent meanwhile.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a refused login keeps its socket: slows guessing, holds no buffer.
pub const REFUSAL_DELAY: Duration = Duration::from_secs(3);

/// Refused logins that wait at once; one more is closed immediately.
pub const REFUSALS_WAITING_MAX: usize = 1000;

/// How long the peer may take to answer `connection.close`.
pub const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// How long all peers together may take to answer it when the node stops.
pub const STOP_WAIT: Duration = Duration::from_secs(2);

/// How long bytes may wait for a socket that takes none.
pub const WRITE_STALL: Duration = Duration::from_secs(30);

/// Connections whose user is not known yet, on the node; half as many from one address, and never more than half
/// of all connections.
pub const UNAUTHENTICATED_MAX: usize = 1000;

/// How long a silent connection whose user is not known is left alone although others wait for its place.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections that wait in the kernel's queue until they are let in, if the system allows so many.
pub const LISTEN_BACKLOG: u16 = 4096;

/// Connections of the node, whatever their state.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Log lines of one kind per second, after [`LOG_LINES_AT_ONCE`]: more are counted.
pub const LOG_LINES_PER_SECOND: u32 = 5;

/// Log lines of one kind that are written as they come.
pub const LOG_LINES_AT_ONCE: u32 = 50;

/// Letters of a client's name that the log shows.
pub const CLIENT_NAME_LETTERS_MAX: usize = 100;

/// Channels of one connection, offered.
pub const CHANNEL_MAX: u16 = 2047;

/// Seconds between heartbeats offered.
pub const HEARTBEAT_SECONDS: u16 = 60;

/// Consumers of one channel.
pub const CONSUMERS_PER_CHANNEL_MAX: usize = 100_000;

/// Channels of one connection that are described.
pub const DESCRIBED_CHANNELS_MAX: usize = 256;

/// Consumers of one channel that are described.
pub const DESCRIBED_CONSUMERS_MAX: usize = 100;

/// Connections that are listed at once.
pub const LISTED_CONNECTIONS_MAX: usize = 100;

/// Questions that wait for one connection; those that nobody waits for any more make room.
pub const QUESTIONS_WAITING_MAX: usize = 16;

/// How long a connection may take to say what it is doing.
pub const DESCRIPTION_WAIT: Duration = Duration::from_secs(1);

/// Bytes of one message's body: what a server may be set to at most.
pub const MESSAGE_BYTES_CAP: u64 = 128 * 1024 * 1024;

/// Bytes of bodies that have begun and not ended, all channels of a connection: this many times the
/// largest message.
pub const PARTIAL_BODIES_MESSAGES: u64 = 2;

/// The part of the memory limit that publishers of all connections together may have in flight.
pub const IN_FLIGHT_SHARE: u64 = 2;

/// Bytes that publishers have in flight, all connections of the node, where it is not said: bodies that have begun,
/// open transactions, and what is whole and not yet on a majority's disks.
pub const IN_FLIGHT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What a connection has in flight is counted in whole pages of so many bytes: small messages cost no count.
pub const IN_FLIGHT_STEP: u64 = 4096;

/// How long a connection that has begun a body or a transaction may wait for memory, or say nothing while others
/// wait for it, before it is closed.
pub const UNFINISHED_WAIT: Duration = Duration::from_secs(30);

/// How often a publisher that waits is looked at.
pub const BLOCKED_LOOK: Duration = Duration::from_secs(1);

/// How long a consumer may hold a message.
pub const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Runs of unacked deliveries of one channel that are looked through, the oldest first, to say since when its consumers
/// hold messages.
pub const DESCRIBED_RUNS_MAX: usize = 10_000;

/// How long a session waits at most before it looks for messages that are held for too long.
pub const LOOK_LONGEST: Duration = Duration::from_secs(60);

/// How long it waits at least, however short the time that a queue allows.
pub const LOOK_SHORTEST: Duration = Duration::from_secs(1);

/// Marks that a channel keeps of how far its delivery tags had come.
pub const TAG_MARKS_MAX: usize = 128;

/// Messages out on one channel when no prefetch bounds them. In the worst case each takes some 50 bytes.
pub const UNACKED_MAX: u32 = 2_000_000;

/// Bytes on their way to the socket: past it the session takes neither answers nor input.
pub const OUTBOUND_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes on their way to the socket past which no credit is given.
pub const OUTBOUND_BYTES_LOW: usize = 1024 * 1024;

/// Bytes on their way to the socket that a session may always have, however much others have. The node counts in
/// whole steps of so many: what is less costs no count.
pub const OUTBOUND_BYTES_FLOOR: usize = 64 * 1024;

/// The part of the memory limit that all sessions together may have on their way to their sockets, before each is down
/// to its floor; at least [`OUTBOUND_BYTES_MAX`].
pub const OUTBOUND_SHARE: u64 = 8;

/// The same in bytes, where no memory limit is said.
pub const OUTBOUND_TOGETHER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Messages a consumer without a prefetch may have on their way to the session.
pub const WINDOW_MESSAGES_MAX: u32 = 2048;

/// Messages such a consumer starts with, before the size of its messages is known.
pub const WINDOW_MESSAGES_START: u32 = 16;

/// A group that has not answered an append for so long gets no messages that may go to another partition.
pub const SILENT_GROUP: Duration = Duration::from_millis(200);
/// Messages from which on room is given to a consumer in windows; less is given as it comes free.
pub const WINDOW_MESSAGES_WHOLE: u32 = 64;

/// Bytes such a consumer should have on their way, by the average of its messages.
pub const WINDOW_BYTES: u64 = 4 * 1024 * 1024;

/// The same while the sessions together have as much on their way as they may.
pub const WINDOW_BYTES_LOW: u64 = 256 * 1024;

/// Bytes of published messages of one session that are not yet logged: past it the socket is not read.
pub const UNLOGGED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of one append: past it the next message begins another.
pub const APPEND_BYTES: usize = 256 * 1024;

/// Messages that one question for room in a queue is about.
pub const ADMIT_MESSAGES: usize = 4096;

/// Groups one session gathers messages for at a time.
pub const APPEND_SLOTS_MAX: usize = 64;

/// Bytes of frames set aside for channels that wait for an answer: past it the socket is not read.
pub const DEFERRED_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of publishes in open transactions of one channel.
pub const TX_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Bytes of an exchange's history that a new binding copies.
pub const HISTORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Acks and rejects in an open transaction of one channel, in runs.
pub const TX_SETTLES_MAX: usize = 65_536;

/// Bytes read at once from a quiet socket.
pub const READ_BYTES: usize = 64 * 1024;

/// Bytes read at once from a busy socket.
pub const READ_BYTES_BUSY: usize = 256 * 1024;

/// Bytes a connection reads at once before its user is known.
pub const READ_BYTES_BEFORE_AUTH: usize = 8 * 1024;

/// Exchanges whose messages a session counts at a time.
pub const EXCHANGES_COUNTED_MAX: usize = 512;

/// Exchanges whose messages a node counts. What goes to others above them is counted nowhere by exchange.
pub const EXCHANGE_METERS_MAX: usize = 10_000;

/// Routes a session remembers.
pub const ROUTES_MAX: usize = 512;

/// Queues one published message may go to.
pub const TARGETS_MAX: usize = 65_535;

/// Confirms that wait behind an unfinished one are told singly after this time.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_millis(50);

/// Bytes of a password that is checked; longer ones are wrong.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Memory of one password check, KiB: what a stored hash may ask for.
pub const PASSWORD_MEMORY_KIB_MAX: u32 = 64 * 1024;

/// Passes of one password check: what a stored hash may ask for.
pub const PASSWORD_PASSES_MAX: u32 = 10;

/// Threads that check passwords: each holds 19 MiB while there is something to check.
pub const VERIFIERS_MAX: usize = 4;

/// How long a thread that checks passwords keeps its memory when there is nothing to check.
pub const VERIFIER_MEMORY_KEPT: Duration = Duration::from_secs(5);

/// Credentials known to be right, on the node.
pub const VERIFIED_CREDENTIALS_MAX: usize = 4096;

/// Credentials known to be wrong, on the node.
pub const WRONG_CREDENTIALS_MAX: usize = 4096;

/// How long credentials are known to be wrong.
pub const WRONG_LOGIN_KNOWN: Duration = Duration::from_secs(5);

/// Wrong passwords of one address that are checked per second, after [`WRONG_LOGINS_AT_ONCE`]; more wait.
pub const WRONG_LOGINS_PER_SECOND: u32 = 20;

/// Wrong passwords of one address that are checked as fast as it goes.
pub const WRONG_LOGINS_AT_ONCE: u32 = 200;

/// Addresses whose wrong logins are counted.
pub const LOGIN_ADDRESSES_MAX: usize = 4096;

/// Bytes of a user name and of a password.
pub const CREDENTIAL_BYTES_MAX: usize = 1024;

/// Bytes of the largest frame before the user is known, where passwords may be tokens.
pub const FRAME_BYTES_WITH_TOKEN: u32 =
    amqp::limits::FRAME_BYTES_BEFORE_TUNE + oauth::limits::TOKEN_BYTES_MAX as u32;

/// How long a login by token lasts at most, whatever its token says.
pub const TOKEN_LOGIN_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Replies on their way to one session's reply consumers; more are dropped.
pub const REPLIES_WAITING_MAX: usize = 4096;

/// Bytes of such replies: past it all but the first are dropped.
pub const REPLIES_WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of them that may wait for a session however much waits for others. The node counts in whole steps of so
/// many: what is less costs no count.
pub const REPLIES_WAITING_BYTES_FLOOR: usize = 64 * 1024;

/// The part of the memory limit that replies on their way to all sessions together may take; at least
/// [`REPLIES_TOGETHER_BYTES_MIN`].
pub const REPLIES_SHARE: u64 = 4;

/// What they may take however low the memory limit is.
pub const REPLIES_TOGETHER_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// What they may take where no memory limit is said.
pub const REPLIES_TOGETHER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Messages of traced vhosts that wait to be published at the exchange of traces: what comes then is not traced.
pub const TRACES_WAITING_MAX: usize = 10_000;

/// Their bytes.
pub const TRACES_WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Spans that a connection keeps open until their messages are confirmed or settled: a span beyond that is over when it
/// begins.
pub const SPANS_OPEN_MAX: usize = 512;

/// Bytes of replies that a session takes at once.
pub const REPLIES_TAKEN_BYTES: usize = 256 * 1024;

const _: () = assert!(OUTBOUND_BYTES_LOW < OUTBOUND_BYTES_MAX);
const _: () = assert!(OUTBOUND_BYTES_FLOOR < OUTBOUND_BYTES_LOW);
const _: () = assert!(
    WINDOW_BYTES == OUTBOUND_BYTES_MAX as u64 / 2,
    "a window grows with what may be encoded"
);
const _: () = assert!(WINDOW_BYTES_LOW < WINDOW_BYTES);
const _: () = assert!(WINDOW_MESSAGES_START <= WINDOW_MESSAGES_MAX);
const _: () = assert!(WINDOW_MESSAGES_WHOLE <= WINDOW_MESSAGES_MAX);
const _: () = assert!(WINDOW_MESSAGES_MAX <= UNACKED_MAX);
const _: () = assert!(READ_BYTES <= READ_BYTES_BUSY);
const _: () = assert!(APPEND_SLOTS_MAX <= 64, "a set of slots is a u64");
