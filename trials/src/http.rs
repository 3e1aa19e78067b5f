//! What brokers are asked over their HTTP APIs: one request each time, over a connection of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real brokers are asked over real sockets"
)]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Whom the first user of a broker is, and its password.
pub const GUEST: (&str, &str) = ("guest", "guest");

/// What a broker says.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Null, if it is none of JSON.
    pub body: Value,
}

impl Answer {
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Asks as this user with this password, and waits for the answer so long.
pub fn ask(
    address: SocketAddr,
    (user, password): (&str, &str),
    (method, path): (&str, &str),
    body: &Value,
    within: Duration,
) -> io::Result<Answer> {
    let mut socket = TcpStream::connect_timeout(&address, within)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(within))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (login, length) = (STANDARD.encode(format!("{user}:{password}")), body.len());
    let request = format!(
        "{method} /api{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Basic {login}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(|| {
        let begin = String::from_utf8_lossy(&answer).chars().take(80).collect::<String>();
        io::Error::other(format!("{method} {path} is answered with {begin:?}"))
    })
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let status = std::str::from_utf8(line).ok()?.split(' ').nth(1)?.parse().ok()?;
    let body = answer.windows(4).position(|it| it == b"\r\n\r\n").map(|at| &answer[at + 4..]);
    let body = body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
    Some(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_stands_in_the_first_line_and_the_body_behind_the_headers() {
        let of = |answer: &[u8]| parse(answer).map(|it| (it.status, it.body));
        assert_eq!(of(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, Value::Null)));
        let json = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"id\":7}";
        assert_eq!(of(json), Some((200, serde_json::json!({ "id": 7 }))));
        assert_eq!(of(b""), None);
    }
}
