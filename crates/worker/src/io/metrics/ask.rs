//! Asks a running worker how it stands.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;
use crate::io::http::{Failure, Http, Http2, Options};

/// Largest answer: 256 pipelines and targets with their errors.
const STATUS_BYTES_MAX: usize = 8 << 20;
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The JSON of the worker that serves this address.
///
/// # Errors
/// Nobody answers there, or something that is no worker.
pub async fn ask(address: &str) -> Result<String, Error> {
    let url = format!("http://{address}/status");
    let request = http::Request::get(&url).body(Bytes::new());
    let request = request.map_err(|error| Error::setup(format!("{address}: {error}")))?;
    let options =
        Options { response_bytes_max: STATUS_BYTES_MAX, http2: Http2::Never, ..Options::default() };
    let answer = Http::new(options)?.send(request, Instant::now() + ANSWER_MAX).await;
    let answer = answer.map_err(|failure| match failure {
        Failure::Forbidden { address } => Error::setup(format!("{address} is not allowed")),
        Failure::Connect { why } | Failure::Broken { why } => Error::away(url.clone(), why),
        Failure::Timeout => Error::away(url.clone(), "no answer in time"),
    })?;
    if answer.status != 200 {
        return Err(Error::setup(format!("{url} answers HTTP {}", answer.status)));
    }
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}
