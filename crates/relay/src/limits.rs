//! Every bound of the relay, in one place.

use std::time::Duration;

/// Rows of one batch at most.
pub const BATCH_ROWS_MAX: u32 = 10_000;
/// Bytes of the rows of the batches of all workers together. Each is there up to three times: as rows, as messages,
/// and as what is being sent; and one batch is read while another is published.
pub const BATCHES_BYTES: usize = 8 << 20;
/// Bytes of a batch of the inbox.
pub const BATCH_BYTES: usize = 16 << 20;
/// Bytes of messages that an inbox may hold before it leaves the broker and takes less at a time.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Bytes of the rows of one batch, however many workers there are: a fetch ends with the row that passes it.
pub const BATCH_BYTES_MIN: usize = 1 << 20;
/// Bytes of rows that one question to the database is to bring, going by the largest row seen of late.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Rows asked for first in every batch, while nothing is known of their size.
pub const FIRST_ROWS: usize = 32;
/// Connections of one relay to the database that drain, and to the broker.
pub const WORKERS_MAX: u32 = 64;
/// Lanes that keys are spread over; a power of two.
pub const LANES_MAX: u32 = 1024;
/// Unconfirmed messages of one worker.
pub const WINDOW_MAX: u32 = 65_536;
/// How long a batch may hold its transaction, and with it row locks and a snapshot.
pub const BATCH_DEADLINE_MAX: Duration = Duration::from_secs(60);
/// How long it may do so at least: less, and a batch would be given back before anything is published.
pub const BATCH_DEADLINE_MIN: Duration = Duration::from_millis(100);
/// Sources of one relay.
pub const SOURCES_MAX: usize = 256;
/// The name of a source.
pub const SOURCE_NAME_BYTES_MAX: usize = 32;
/// Text kept of an error.
pub const ERROR_BYTES_MAX: usize = 1000;
/// Columns that a mapping may read.
pub const COLUMNS_MAX: usize = 64;
/// Headers of a message, in bytes as AMQP encodes them: half of the frame that brokers propose.
pub const HEADERS_BYTES_MAX: usize = 64 << 10;
/// Longest exchange name, routing key and message-id that AMQP can carry.
pub const SHORT_STRING_BYTES_MAX: usize = 255;
/// Letters of a message-id in an inbox: with the consumer's name it is a key, and InnoDB's have at most 3072 bytes.
pub const MESSAGE_ID_LETTERS_MAX: usize = 512;
/// Bytes of one INSERT of an inbox, where a batch is several of them.
pub const INSERT_BYTES: usize = 4 << 20;
/// Rows of one INSERT of an inbox, where a batch is several of them; a power of two.
pub const INSERT_ROWS_MAX: usize = 256;
/// Longest name that PostgreSQL keeps.
pub const NAME_BYTES_MAX: usize = 63;
/// Nesting of a headers column.
pub const HEADERS_DEPTH_MAX: usize = 32;
/// Rows that one publisher remembers because a connection was lost while they alone were in flight.
pub const MARKED_ROWS_MAX: usize = 20_000;
/// Attempts of a message whose failure may pass.
pub const ATTEMPTS_MAX: u32 = 1000;

/// At most [`ERROR_BYTES_MAX`] bytes of `text`, cut at a character, without what PostgreSQL's text cannot hold.
pub(crate) fn shortened(text: &str) -> String {
    let clean: String = text.chars().filter(|&c| c != '\0').collect();
    if clean.len() <= ERROR_BYTES_MAX {
        return clean;
    }
    let mut end = ERROR_BYTES_MAX;
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &clean[..end])
}
