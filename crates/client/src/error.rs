//! What can go wrong between a client and a server, with the server's code and words where it has said any.

use std::fmt;

use amqp::ReplyCode;

/// Why something was not done. Says what happened, to what, and where it can be known what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No connection could be made.
    Unreachable { address: String, why: String },
    /// TLS could not be agreed on: a certificate that is not believed, or a file that cannot be used.
    Tls { why: String },
    /// The connection was there and is gone, without a word from the server.
    Lost { why: String },
    /// The server did not answer in time.
    NoAnswer { to: String },
    /// `connection.close`: everything on the connection ended.
    ConnectionClosed { code: u16, text: String },
    /// `channel.close`: the request on this channel was refused; the connection lives.
    ChannelClosed { code: u16, text: String },
    /// `basic.cancel`: the queue is gone.
    ConsumerCancelled { queue: String },
    /// The server sent what AMQP 0-9-1 does not allow.
    Protocol { text: String },
    /// The caller asked for what AMQP cannot carry, or what this client does not do.
    Invalid { text: String },
}

impl Error {
    /// Whether another attempt, on a new connection, may do better.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } | Self::NoAnswer { .. } => true,
            Self::ConnectionClosed { code, .. } => {
                [ReplyCode::ConnectionForced, ReplyCode::InternalError, ReplyCode::ResourceError]
                    .iter()
                    .any(|temporary| *temporary as u16 == *code)
            }
            Self::Tls { .. }
            | Self::ChannelClosed { .. }
            | Self::ConsumerCancelled { .. }
            | Self::Protocol { .. }
            | Self::Invalid { .. } => false,
        }
    }

    /// The server's reply code, if it gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::ConnectionClosed { code, .. } | Self::ChannelClosed { code, .. } => Some(*code),
            Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::Lost { .. }
            | Self::NoAnswer { .. }
            | Self::ConsumerCancelled { .. }
            | Self::Protocol { .. }
            | Self::Invalid { .. } => None,
        }
    }

    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Protocol { text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid { text: text.into() }
    }
}

impl From<amqp::Error> for Error {
    fn from(error: amqp::Error) -> Self {
        Self::protocol(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, why } => write!(out, "no connection to {address}: {why}"),
            Self::Lost { why } => write!(out, "the connection was lost: {why}"),
            Self::NoAnswer { to } => write!(out, "the server did not answer in time: {to}"),
            Self::ConnectionClosed { code, text } => {
                write!(out, "the server closed the connection: {code} {text}")
            }
            Self::ChannelClosed { code, text } => write!(out, "the server refused: {code} {text}"),
            Self::ConsumerCancelled { queue } => {
                write!(out, "the server cancelled the consumer: queue '{queue}' is gone")
            }
            Self::Protocol { text } => write!(out, "the server broke AMQP 0-9-1: {text}"),
            Self::Tls { why } => out.write_str(why),
            Self::Invalid { text } => out.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_not_tried_again_and_a_lost_connection_is() {
        let closed = |code| Error::ConnectionClosed { code, text: String::new() };
        assert!(Error::Lost { why: "reset".into() }.is_temporary());
        assert!(closed(320).is_temporary());
        assert!(closed(541).is_temporary());
        assert!(!closed(403).is_temporary());
        assert!(!closed(530).is_temporary());
        assert!(!Error::ChannelClosed { code: 404, text: String::new() }.is_temporary());
    }

    #[test]
    fn the_servers_code_and_words_are_shown() {
        let text = "NOT_FOUND - no queue 'q' in vhost '/'".to_string();
        let error = Error::ChannelClosed { code: 404, text };
        assert_eq!(
            error.to_string(),
            "the server refused: 404 NOT_FOUND - no queue 'q' in vhost '/'"
        );
        assert_eq!(error.code(), Some(404));
    }
}
