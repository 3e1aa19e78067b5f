//! An endpoint for webhooks that takes every request after a while, over HTTP/1.1 and HTTP/2 without TLS.

use std::convert::Infallible;
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
}

/// Serves on this thread alone, until it is killed.
///
/// # Errors
/// The port is taken.
pub fn run(options: &Options) -> std::io::Result<bool> {
    let latency = Duration::from_millis(options.latency_ms);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut server = Builder::new(TokioExecutor::new());
                server.http2().max_concurrent_streams(1000);
                let service = service_fn(move |request| answer(request, latency));
                // A client that goes away is none of our business.
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    latency: Duration,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    tokio::time::sleep(latency).await;
    Ok(Response::new(Empty::new()))
}
