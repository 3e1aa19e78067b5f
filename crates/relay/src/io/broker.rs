//! A worker's connection to the broker.

use client::{Options, Publisher, Url};

use crate::error::Error;

/// A publisher that tells every loss: what was unconfirmed is given back to the database, which knows it best.
pub(crate) async fn open(url: &Url, name: &str, window: u32) -> Result<Publisher, Error> {
    let options = Options::named(name).without_retry();
    Publisher::open(url, &options, window).await.map_err(|error| Error::Broker {
        doing: format!("connecting to {url}"),
        text: error.to_string(),
    })
}

/// Whether the broker closed because of something it was sent; its code and words.
pub(crate) fn refusal(error: &client::Error) -> Option<(u16, String)> {
    match error {
        client::Error::ChannelClosed { code, text } => Some((*code, text.clone())),
        // Codes of what was sent; others (a permission, a vhost that goes, an operator) are the connection's.
        client::Error::ConnectionClosed {
            code: code @ (501 | 502 | 503 | 505 | 540 | 541),
            text,
        } => Some((*code, text.clone())),
        client::Error::Invalid { text } => Some((0, text.clone())),
        client::Error::Unreachable { .. }
        | client::Error::Tls { .. }
        | client::Error::Lost { .. }
        | client::Error::NoAnswer { .. }
        | client::Error::ConnectionClosed { .. }
        | client::Error::ConsumerCancelled { .. }
        | client::Error::Protocol { .. } => None,
    }
}
