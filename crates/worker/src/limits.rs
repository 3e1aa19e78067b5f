//! Every bound of the worker, in one place, with its unit.

use std::time::Duration;

/// Jobs that one pipeline may hold, started or not.
pub const BUFFER_MAX: usize = 65_535;
/// Bytes of the bodies of the jobs that one process holds.
pub const BUFFER_BYTES: usize = 256 << 20;
/// Largest body of a job, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Headers of a job, in bytes as AMQP encodes them: half of the frame that brokers propose.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;
/// Jobs of one run (one request with several jobs).
pub const RUN_JOBS_MAX: usize = 1000;
/// Longest time of one attempt.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(12 * 3600);
/// Runs or jobs per second that can be set.
pub const RATE_MIN: f64 = 0.001;
pub const RATE_MAX: f64 = 1_000_000.0;
/// Keys that one pipeline remembers: those of the jobs it holds, and those whose rate or throttle is not over.
pub const KEYS_MAX: usize = 131_072;
/// How long a throttled job waits in this process; what is to wait longer goes back to its source.
pub const HOLD_MAX: Duration = Duration::from_secs(10);
/// How long a job of an ordered key waits in this process.
pub const HOLD_ORDERED_MAX: Duration = Duration::from_secs(15 * 60);
/// Pipelines and targets of one process.
pub const PIPELINES_MAX: usize = 256;
/// Text kept of an error.
pub const WHY_BYTES_MAX: usize = 1000;
/// Attempts before a job is dead, at most.
pub const ATTEMPTS_MAX: u32 = 1000;
/// Longest delay of a retry.
pub const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a job may come out of a broker before it is taken for one that kills its worker.
pub const DELIVERIES_MAX: u32 = 20;
/// Headers of an HTTP answer.
pub const HTTP_HEADERS_MAX: usize = 100;
/// Bytes of all headers of an HTTP answer.
pub const HTTP_HEADER_BYTES_MAX: usize = 64 << 10;
/// Addresses of one name that are tried for one connection.
pub const HTTP_ADDRESSES_MAX: usize = 8;
/// How long an unused HTTP connection is kept.
pub const HTTP_IDLE: Duration = Duration::from_secs(60);
/// How often a used HTTP/2 connection is asked whether it lives.
pub const HTTP_PING: Duration = Duration::from_secs(20);
/// How long it has to answer that.
pub const HTTP_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests on one HTTP/2 connection before another one is opened: what servers allow at least.
pub const HTTP2_STREAMS: usize = 100;
/// HTTP/2 connections to one host.
pub const HTTP2_CONNECTIONS_MAX: usize = 16;
/// Bytes of one answer that an HTTP/2 server may send ahead.
pub const HTTP2_STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all answers that an HTTP/2 server may send ahead on one connection.
pub const HTTP2_CONNECTION_WINDOW: u32 = 2 << 20;
/// Connections of one APNs target, beside its quarantine.
pub const APNS_CONNECTIONS_MAX: usize = 64;
/// Longest name, id or key of a job: what AMQP's short strings carry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Headers that one job may be given by a chain.
pub const HEADERS_MAX: usize = 64;
/// Largest `x-job-then` or `x-job-batch`, in bytes.
pub const CHAIN_BYTES_MAX: usize = 64 * 1024;
/// Jobs one after the other in one chain.
pub const CHAIN_DEPTH_MAX: usize = 16;
/// Jobs of one chain, all that follow counted.
pub const CHAIN_JOBS_MAX: usize = 100;
/// Jobs of one batch.
pub const BATCH_JOBS_MAX: u32 = 10_000;
/// Batches that are open at a time with one tracker.
pub const BATCHES_OPEN_MAX: usize = 10_000;
/// Batches that are over and still known, so that a late note is dropped.
pub const BATCHES_OVER_MAX: usize = 10_000;
/// Notes that the tracker holds unacknowledged: its prefetch.
pub const NOTES_HELD_MAX: u16 = 40_000;
/// Schedules of one worker.
pub const SCHEDULES_MAX: usize = 1000;
/// Ticks that one schedule makes up for at a time.
pub const MISSED_MAX: u32 = 1000;
/// Processes that share the rate of one target.
pub const SHARERS_MAX: usize = 1000;
/// How long a source that is closed waits for a poll that is under way.
pub const POLL_END_MAX: Duration = Duration::from_secs(2);
/// How long a source that is closed tries to carry out what is due at a broker that is away.
pub const CLOSE_MAX: Duration = Duration::from_secs(10);
/// Fetchers or settlers of one source.
pub const FETCHERS_MAX: usize = 64;
/// Jobs of one call to Redis.
pub const REDIS_BATCH_MAX: usize = 1000;
/// Delayed jobs that one call to Redis makes due, and orphans that one call takes over.
pub const REDIS_MOVE_MAX: usize = 500;
