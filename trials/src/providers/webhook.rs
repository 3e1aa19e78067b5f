//! An endpoint for webhooks that takes every request after a while, over HTTP/1.1 and HTTP/2 without TLS.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;

/// Where it listens, and how slow it is.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[arg(long)]
    port: u16,
    /// How long an answer takes
    #[arg(long, default_value_t = 50)]
    latency_ms: u64,
    /// Append the id of each request to this file before it is answered
    #[arg(long)]
    record: Option<PathBuf>,
}

/// Serves on this thread alone, until it is killed.
///
/// # Errors
/// The port is taken.
pub fn run(options: &Options) -> std::io::Result<bool> {
    let latency = Duration::from_millis(options.latency_ms);
    let record = match &options.record {
        Some(path) => Some(File::options().create(true).append(true).open(path)?),
        None => None,
    };
    let record = Arc::new(record);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let record = Arc::clone(&record);
            tokio::spawn(async move {
                let mut server = Builder::new(TokioExecutor::new());
                server.http2().max_concurrent_streams(1000);
                let service =
                    service_fn(move |request| answer(request, latency, Arc::clone(&record)));
                // A client that goes away is none of our business.
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    latency: Duration,
    record: Arc<Option<File>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let id = request.headers().get("webhook-id").cloned();
    let _ = request.into_body().collect().await;
    if let (Some(mut file), Some(id)) = (record.as_ref().as_ref(), id) {
        // One write, so that lines of several tasks do not mix.
        let line = [id.as_bytes(), b"\n"].concat();
        if file.write_all(&line).is_err() {
            let mut refused = Response::new(Empty::new());
            *refused.status_mut() = hyper::StatusCode::INSUFFICIENT_STORAGE;
            return Ok(refused);
        }
    }
    tokio::time::sleep(latency).await;
    Ok(Response::new(Empty::new()))
}
