//! What the two brokers are asked over their HTTP APIs: policies, users, permissions. One request each time, and of the
//! answer only its status.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use amqp::FieldValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// How long a broker may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const LOGIN: &str = "guest:guest";

/// Asks as `guest`, and gives back the status.
pub(super) fn ask(address: SocketAddr, method: &str, path: &str, body: &Value) -> io::Result<u16> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (login, length) = (STANDARD.encode(LOGIN), body.len());
    let request = format!(
        "{method} /api{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Basic {login}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    status(&answer).ok_or_else(|| {
        let begin = String::from_utf8_lossy(&answer).chars().take(80).collect::<String>();
        io::Error::other(format!("{method} {path} is answered with {begin:?}"))
    })
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.split(' ').nth(1)?.parse().ok()
}

/// A value of a script as JSON.
pub(super) fn json(value: &FieldValue) -> Value {
    match value {
        FieldValue::I32(number) => Value::from(*number),
        FieldValue::I64(number) => Value::from(*number),
        FieldValue::F64(number) => Value::from(*number),
        FieldValue::Bool(truth) => Value::from(*truth),
        FieldValue::LongStr(text) => Value::from(String::from_utf8_lossy(text).into_owned()),
        FieldValue::Array(values) => values.iter().map(json).collect(),
        FieldValue::I8(_)
        | FieldValue::U8(_)
        | FieldValue::I16(_)
        | FieldValue::U16(_)
        | FieldValue::U32(_)
        | FieldValue::F32(_)
        | FieldValue::Decimal { .. }
        | FieldValue::Bytes(_)
        | FieldValue::Timestamp(_)
        | FieldValue::Table(_)
        | FieldValue::Void => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_stands_in_the_first_line() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n\r\n"), Some(204));
        assert_eq!(status(b""), None);
    }
}
