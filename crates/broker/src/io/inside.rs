//! A client inside the node: what an operator asks for over HTTP is done by an AMQP session of its user, which meets
//! the rules that clients meet. Only its socket never leaves the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oauth::{Attempt, CodeLogin, Grant};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::broker::Broker;
use super::listener::{Served, serve_stream};
use super::place::Place;
use crate::connection::login::{Proven, admit, admit_token, held_against};
use crate::limits;
use crate::logins::Address;
use crate::metrics::Metrics;
use crate::session::{LoginRefusal, Verify};

/// Whom the node has let in already.
#[derive(Clone, Debug)]
pub struct Known {
    pub user: String,
    /// What the user's token gives, if that is how it is known.
    pub grant: Option<Arc<Grant>>,
}

/// Opens a connection of somebody known, as if `peer` had connected. Gives the client's end, which logs in with EXTERNAL.
/// The other end is served until either is closed.
///
/// # Errors
/// There is no room for another connection, or no socket.
pub async fn connect(
    broker: &Arc<Broker>,
    peer: SocketAddr,
    Known { user, grant }: Known,
) -> std::io::Result<UnixStream> {
    let proven = grant.map_or(Proven::User(user), Proven::Token);
    let (ours, theirs) = UnixStream::pair()?;
    Metrics::count(&broker.metrics.connections_opened);
    let Some((place, go)) = Place::take(broker, peer).await else {
        Metrics::count(&broker.metrics.connections_closed);
        return Err(std::io::Error::other("the node has as many connections as it may have"));
    };
    let broker = Arc::clone(broker);
    tokio::spawn(async move {
        // It ends with its client, which does not outlive the request that it was opened for.
        let (stop, stopped) = watch::channel(false);
        let served = Served { peer, local: None, place, is_tls: false, proven: Some(proven), go };
        serve_stream(ours, served, broker, stopped).await;
        drop(stop);
    });
    Ok(theirs)
}

/// Whether a user who comes from `peer` may use this node at all, whatever the proof.
pub fn admits(broker: &Broker, user: &str, peer: SocketAddr) -> bool {
    admit(&broker.cluster.catalog(), &broker.config, user, peer.ip()).is_ok()
}

/// The same of the owner of a token that was judged.
pub fn admits_token(broker: &Broker, grant: &Arc<Grant>, peer: SocketAddr) -> bool {
    admit_token(&broker.config, Ok(Arc::clone(grant)), peer.ip()).is_ok()
}

/// How long `peer` has to wait before its next password is looked at, because it has sent too many wrong ones.
pub fn wait(broker: &Broker, peer: SocketAddr) -> Duration {
    broker.credentials.wait(Address::of(peer.ip()))
}

/// Whether a password is judged as a token.
pub fn is_token(broker: &Broker, password: &[u8]) -> bool {
    broker.config.takes_tokens && oauth::looks_like_token(password)
}

/// What a token gives to its owner, who comes from `peer` and asks over HTTP. The log says why a login is refused, and
/// who asks is not told.
pub async fn judge(broker: &Broker, token: &[u8], peer: SocketAddr) -> Option<Arc<Grant>> {
    let judged = match broker.config.takes_tokens {
        true => broker.judge(token, peer.ip()).await,
        false => return None,
    };
    match admit_token(&broker.config, judged, peer.ip()) {
        Ok(grant) => Some(grant),
        Err(why) => {
            Metrics::count(&broker.metrics.logins_refused);
            broker.places.tell_refused(peer, "", why);
            None
        }
    }
}

/// How a browser logs in at an identity server. None: it does not.
pub fn code_login(broker: &Broker) -> Option<&CodeLogin> {
    broker.tokens()?.login()
}

/// The token that the identity server gives for a code, still to be judged. The log says why it gives none, which counts
/// as a refused login: `peer` waits before the server is asked too often.
pub async fn redeem(
    broker: &Broker,
    peer: SocketAddr,
    attempt: &Attempt,
    code: &str,
    redirect: &str,
) -> Option<String> {
    let redeemed = broker.tokens()?.redeem(attempt, code, redirect).await;
    redeemed
        .inspect_err(|why| {
            Metrics::count(&broker.metrics.logins_refused);
            broker.credentials.count_refused(Address::of(peer.ip()));
            tracing::warn!(
                %peer, why,
                "refused a login at the console: the identity server gave no token for the code. Look at the settings \
                 oauth_client_id and oauth_token_url, and at the client that the server has"
            );
        })
        .ok()
}

/// Whether `password` is the user's, who comes from `peer` and asks over HTTP. Takes as long whatever is wrong, and as
/// many at a time as for clients. The log says why a login is refused, and who asks is not told.
pub async fn is_right(broker: &Broker, user: &str, password: &[u8], peer: SocketAddr) -> bool {
    let refuse = |why: LoginRefusal| {
        Metrics::count(&broker.metrics.logins_refused);
        broker.places.tell_refused(peer, user, why);
        false
    };
    let long = limits::CREDENTIAL_BYTES_MAX;
    if user.is_empty() || user.len() > long || password.is_empty() || password.len() > long {
        return refuse(LoginRefusal::Unreadable);
    }
    let (stored, why) = held_against(&broker.cluster.catalog(), &broker.config, user, peer.ip());
    let (name, password) = (user.to_owned(), password.to_vec());
    let verify = Verify { user: name, password, peer: peer.ip(), stored };
    broker.credentials.verify(verify).await || refuse(why)
}
