//! Accepts AMQP connections: one task for each. Who is let in, and when, is decided by `door`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use certificates::ServerTls;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::broker::Broker;
use super::connection::Connection;
use super::describe::Ear;
use super::place::Place;
use crate::config::Config;
use crate::connection::login::Proven;
use crate::limits;
use crate::metrics::Metrics;
use crate::notices::Kind;
use crate::session::{Certified, Session};

/// How long accepting rests when it fails: the usual reason is too many open files.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// How often a quiet peer's kernel is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Gives a listener's queue room for an avalanche of clients: those who are not let in yet wait there, and notice
/// nothing but a moment's delay. The kernel keeps 128 of them if nobody asks for more.
///
/// # Errors
/// The operating system refuses.
pub fn deepen_queue(listener: &TcpListener) -> std::io::Result<()> {
    SockRef::from(listener).listen(limits::LISTEN_BACKLOG.into())
}

/// Serves AMQP connections of one listener until `stop` says true; then every client is told so
/// (`connection.close` 320), and those that do not answer in time are dropped. Under TLS, if there is something to show.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    broker: Arc<Broker>,
    mut stop: watch::Receiver<bool>,
) {
    if let Err(error) = deepen_queue(&listener) {
        tracing::warn!(%error, "cannot lengthen the queue of new AMQP connections; bursts of clients may wait longer");
    }
    let mut connections = JoinSet::new();
    // Kept from one turn of the loop to the next: a client may be half in.
    let mut newcomer = Box::pin(let_in(&listener, &broker));
    loop {
        let accepted = tokio::select! {
            accepted = &mut newcomer => accepted,
            Some(_) = connections.join_next() => continue,
            changed = stop.changed() => match changed.is_err() || *stop.borrow() {
                true => break,
                false => continue,
            },
        };
        newcomer.set(let_in(&listener, &broker));
        if let Some(newcomer) = accepted {
            connections.spawn(serve_one(newcomer, tls.clone(), Arc::clone(&broker), stop.clone()));
        }
    }
    drop(newcomer);
    drop(listener);
    let all_told = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits::STOP_WAIT, all_told).await.is_err() {
        connections.shutdown().await;
    }
}

/// A client that is let in.
struct Newcomer {
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    /// Tells it to make way for another.
    go: oneshot::Receiver<()>,
}

/// The next client. None: it was turned away, or could not be accepted.
async fn let_in(listener: &TcpListener, broker: &Arc<Broker>) -> Option<Newcomer> {
    let (stream, peer) = match listener.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            if let Some(not_shown) = broker.places.writes(Kind::AcceptFailed) {
                tracing::warn!(
                    %error, not_shown,
                    "cannot accept an AMQP connection. The node tries again; if it has too many open files, raise \
                     their limit (ulimit -n, LimitNOFILE)"
                );
            }
            tokio::time::sleep(ACCEPT_REST).await;
            return None;
        }
    };
    Metrics::count(&broker.metrics.connections_opened);
    match Place::take(broker, peer).await {
        Some((place, go)) => Some(Newcomer { stream, peer, place, go }),
        None => {
            Metrics::count(&broker.metrics.connections_closed);
            None
        }
    }
}

async fn serve_one(
    newcomer: Newcomer,
    tls: Option<Arc<ServerTls>>,
    broker: Arc<Broker>,
    stop: watch::Receiver<bool>,
) {
    let Newcomer { stream, peer, place, mut go } = newcomer;
    if let Err(error) = prepare(&stream, &broker.config) {
        tracing::debug!(%peer, %error, "cannot set the options of a client's socket; the connection is closed");
        return;
    }
    let local = stream.local_addr().ok();
    let Some(tls) = tls else {
        let served = Served { peer, local, place, is_tls: false, proven: None, go };
        return serve_stream(stream, served, broker, stop).await;
    };
    let handshake = TlsAcceptor::from(tls.config()).accept(stream);
    let sealed = tokio::select! {
        biased;
        sealed = tokio::time::timeout(broker.config.handshake, handshake) => sealed,
        _ = &mut go => return,
    };
    match sealed {
        Ok(Ok(stream)) => {
            let proven = certified(&stream, &broker.config).map(Proven::Certificate);
            let served = Served { peer, local, place, is_tls: true, proven, go };
            serve_stream(stream, served, broker, stop).await;
        }
        Ok(Err(why)) => broker.places.tell_no_tls(peer, &why),
        Err(_) => Metrics::count(&broker.metrics.limit_handshake),
    }
}

/// Whom the client's certificate names, if it showed one and that counts. The handshake has verified it.
fn certified(stream: &TlsStream<TcpStream>, config: &Config) -> Option<Certified> {
    let from = config.certificate_user?;
    let (_, tls) = stream.get_ref();
    let certificate = tls.peer_certificates()?.first()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Some(certificates::user_of(certificate, from, now_s))
}

/// A connection whose bytes can travel.
pub(super) struct Served {
    pub(super) peer: SocketAddr,
    /// The node's address that the client has connected to.
    pub(super) local: Option<SocketAddr>,
    pub(super) place: Place,
    pub(super) is_tls: bool,
    /// Who the client is before it says a word.
    pub(super) proven: Option<Proven>,
    /// Tells it to make way for another.
    pub(super) go: oneshot::Receiver<()>,
}

/// Serves one connection over whatever its bytes travel.
pub(super) async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    served: Served,
    broker: Arc<Broker>,
    stop: watch::Receiver<bool>,
) {
    let Served { peer, local, place, is_tls, proven, go } = served;
    let (session_id, answers) = broker.cluster.open_session();
    let config = Arc::clone(&broker.config);
    let (node, seed) = (broker.cluster.node(), broker.seed());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    let session = Session::new(config, session_id, node, peer, seed, Instant::now(), wall_ms);
    let session = match proven {
        Some(proven) => session.proven(proven),
        None => session,
    };
    let session = match broker.collects_spans() {
        true => session.with_spans(local),
        false => session,
    };
    let ear = Ear::open(&broker.connections, session_id, (peer, is_tls), wall_ms);
    let connection = Connection::new(stream, session, answers, ear, broker);
    let told_to_go = async {
        if go.await.is_err() {
            // It is known, and stays.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = connection.run(stop, &place) => {}
        () = told_to_go => {}
    }
    drop(place);
}

fn prepare(stream: &TcpStream, config: &Config) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    // A peer whose machine is gone is found out even if it agreed on no heartbeats.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(config.write_stall.max(KEEPALIVE)))?;
    Ok(())
}
