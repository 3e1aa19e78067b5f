//! How many locks a second three nodes give out over HTTP: each client takes a lock, gives it back, and takes the next.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a load generator has sockets, clocks and tasks"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Options;
use super::gaps::median;
use crate::chaos::Failure;
use crate::chaos::cluster::Cluster;
use crate::chaos::net::HTTP_PORT;
use crate::http::GUEST;
use crate::ladder::usage::cpu_of_process;

/// So many connections, a third of them at each node.
const CLIENTS: [usize; 3] = [1, 64, 256];
/// Of each client, taken in turns: no lock is wanted by two.
const NAMES: usize = 16;
const WARM_UP: Duration = Duration::from_secs(1);

/// The table's head.
pub const HEAD: &str = "| clients | acquired and released/s | acquire p50 / p99 ms | CPU for both, all nodes |\n\
    | --: | --: | --: | --: |\n";

/// One number of clients.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Held {
    pub clients: usize,
    pub runs: Vec<Figures>,
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Figures {
    pub acquired_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpu_us: f64,
}

impl Held {
    pub fn row(&self) -> String {
        let median =
            |figure: fn(&Figures) -> f64| median(&self.runs.iter().map(figure).collect::<Vec<_>>());
        format!(
            "| {} | {:.0} | {:.2} / {:.2} | {:.1} us |\n",
            self.clients,
            median(|run| run.acquired_per_s),
            median(|run| run.p50_ms),
            median(|run| run.p99_ms),
            median(|run| run.cpu_us),
        )
    }
}

/// Each number of clients, so many times.
pub(super) fn measure(options: &Options, cluster: &Cluster) -> Result<Vec<Held>, Failure> {
    let nodes: Vec<SocketAddr> =
        cluster.addresses().iter().map(|node| SocketAddr::new(node.ip(), HTTP_PORT)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut all = Vec::new();
    for clients in CLIENTS {
        let run = |_| runtime.block_on(run(clients, options.seconds, &nodes, &cluster.pids()));
        let runs = (0..options.runs).map(run).collect::<Result<_, _>>()?;
        let held = Held { clients, runs };
        print!("{}", held.row());
        all.push(held);
    }
    Ok(all)
}

async fn run(
    clients: usize,
    seconds: u32,
    nodes: &[SocketAddr],
    pids: &[u32],
) -> Result<Figures, Failure> {
    let from = Instant::now() + WARM_UP;
    let until = from + Duration::from_secs(seconds.into());
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        let client = Client::connect(number, nodes[number % nodes.len()]).await?;
        tasks.spawn(client.run(from, until));
    }
    let cpu = || pids.iter().map(|pid| cpu_of_process(*pid)).sum::<f64>();
    tokio::time::sleep_until(from.into()).await;
    let before = cpu();
    tokio::time::sleep_until(until.into()).await;
    let used = cpu() - before;
    let mut took = Vec::new();
    while let Some(client) = tasks.join_next().await {
        took.extend(client.map_err(|error| Failure::Trial(error.to_string()))??);
    }
    took.sort_unstable();
    let part = |of_hundred: usize| took.get(took.len() * of_hundred / 100);
    let ms = |took: Option<&Duration>| took.map_or(0.0, Duration::as_secs_f64) * 1000.0;
    Ok(Figures {
        acquired_per_s: took.len() as f64 / f64::from(seconds),
        p50_ms: ms(part(50)),
        p99_ms: ms(part(99)),
        cpu_us: used * 1e6 / took.len().max(1) as f64,
    })
}

/// One that wants locks, over a connection of its own.
struct Client {
    number: usize,
    http: SendRequest<Full<Bytes>>,
    login: String,
}

impl Client {
    async fn connect(number: usize, node: SocketAddr) -> Result<Self, Failure> {
        let socket = TcpStream::connect(node).await?;
        socket.set_nodelay(true)?;
        let (http, connection) = handshake(TokioIo::new(socket)).await.map_err(told)?;
        tokio::spawn(connection);
        let login = format!("Basic {}", STANDARD.encode(format!("{}:{}", GUEST.0, GUEST.1)));
        Ok(Self { number, http, login })
    }

    /// How long each acquire took that was asked for in this time.
    async fn run(mut self, from: Instant, until: Instant) -> Result<Vec<Duration>, Failure> {
        let body = format!(r#"{{"owner":"client {}","lease_ms":30000}}"#, self.number);
        let mut took = Vec::new();
        for turn in 0.. {
            let asked = Instant::now();
            if asked >= until {
                break;
            }
            let path = format!("/api/millrace/locks/%2F/bench-{}-{}", self.number, turn % NAMES);
            let answer = self.ask("PUT", &path, body.clone(), StatusCode::CREATED).await?;
            if asked >= from {
                took.push(asked.elapsed());
            }
            let answer = answer.into_body().collect().await.map_err(told)?.to_bytes();
            let answer: serde_json::Value = serde_json::from_slice(&answer).map_err(told)?;
            let path = format!("{path}?token={}", answer["token"]);
            self.ask("DELETE", &path, String::new(), StatusCode::NO_CONTENT).await?;
        }
        Ok(took)
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: String,
        expected: StatusCode,
    ) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", &self.login)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(told)?;
        self.http.ready().await.map_err(told)?;
        let answer = self.http.send_request(request).await.map_err(told)?;
        match answer.status() == expected {
            true => Ok(answer),
            false => {
                Err(Failure::Trial(format!("{method} {path} is answered {}", answer.status())))
            }
        }
    }
}

fn told(error: impl std::error::Error) -> Failure {
    Failure::Trial(format!("a lock's request failed: {error}"))
}
