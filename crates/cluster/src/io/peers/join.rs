//! Joining: a node without a cluster asks a member to be taken in.

use std::time::Duration;

use bytes::BytesMut;
use machine::NodeInfo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Shared;
use super::greet::{self, GREETING};
use super::line::{Broken, Line, dial, draw, read_frame, write};
use super::tls::Tls;
use crate::peer::admission::{Admitted, decode_enter, encode_enter};
use crate::peer::frame::Kind;
use crate::peer::gather::Gather;
use crate::peer::handshake::{Greeting, Hello, PROTOCOLS, Purpose, Secret, encode_sentence};

/// How long the cluster may take to agree.
const ADMISSION: Duration = Duration::from_secs(15);

/// Bytes of what either side says.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// A node that wants to join; who takes it in answers with everybody who is a member then, or with a
/// sentence that says why not.
#[derive(Debug)]
pub struct Admission {
    pub node: NodeInfo,
    pub reply: oneshot::Sender<Result<Vec<NodeInfo>, String>>,
}

/// Asks the member at `address` to take `ours` in. Says which cluster that is, and how to begin in it.
pub(in crate::io) fn ask(
    address: &str,
    ours: &NodeInfo,
    secret: &Secret,
    tls: Option<&Tls>,
) -> Result<(u128, Admitted), String> {
    let fail = |why: &dyn std::fmt::Display| {
        format!(
            "this node cannot join through the member at {address} (--join): {why}. Check that this is the \
             address of the peer port of a running member"
        )
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| fail(&error))?;
    runtime.block_on(enter(address, ours, secret, tls)).map_err(|why| match why {
        Broken::RefusedByPeer(sentence) => sentence,
        why => fail(&why),
    })
}

async fn enter(
    address: &str,
    ours: &NodeInfo,
    secret: &Secret,
    tls: Option<&Tls>,
) -> Result<(u128, Admitted), Broken> {
    let stream = dial(address, GREETING).await?;
    let secured = timeout(GREETING, line(stream, address, tls)).await;
    let mut line = secured.unwrap_or(Err(Broken::Silent(GREETING)))?;
    let hello = Hello {
        protocols: PROTOCOLS,
        cluster: 0,
        node: ours.node,
        incarnation: ours.incarnation,
        boot: 0,
        last_boot: 0,
        purpose: Purpose::Join,
        nonce: draw(),
    };
    let theirs = greet::joiner(&mut line, hello, secret).await?;
    let mut out = Gather::default();
    encode_enter(&mut out, &ours.address).map_err(Broken::Output)?;
    write(&mut line.socket, &mut out).await?;
    let answer = timeout(ADMISSION + GREETING, read_frame(&mut line, FRAME_BYTES_MAX)).await;
    let frame = answer.unwrap_or(Err(Broken::Silent(ADMISSION)))?;
    if frame.kind == Kind::Refused
        && let Ok(Greeting::Refused(sentence)) = Greeting::decode(frame.clone())
    {
        return Err(Broken::RefusedByPeer(sentence));
    }
    Ok((theirs.cluster, Admitted::decode(frame).map_err(Broken::Input)?))
}

/// A socket that was dialed, as bytes go through it.
pub(super) async fn line(
    stream: TcpStream,
    address: &str,
    tls: Option<&Tls>,
) -> Result<Line, Broken> {
    let socket = match tls {
        Some(tls) => tls.connect(stream, address).await?,
        None => Box::new(stream),
    };
    Ok(Line { socket, read: BytesMut::new(), protocol: PROTOCOLS.0 })
}

/// Takes a node in, or says why not.
pub(super) async fn serve(line: &mut Line, hello: &Hello, shared: &Shared) -> Result<(), Broken> {
    let frame = timeout(GREETING, read_frame(line, FRAME_BYTES_MAX)).await;
    let address = decode_enter(frame.unwrap_or(Err(Broken::Silent(GREETING)))?);
    let address = address.map_err(Broken::Input)?;
    let node = NodeInfo { node: hello.node, address, incarnation: hello.incarnation };
    let (reply, answer) = oneshot::channel();
    let nobody = || {
        "this member can admit no node now: try again, or name another member with --join"
            .to_owned()
    };
    let decided = async {
        let asked = shared.admissions.try_send(Admission { node, reply });
        asked.map_err(|_| nobody())?;
        answer.await.unwrap_or_else(|_| Err(nobody()))
    };
    let mut out = Gather::default();
    match timeout(ADMISSION, decided).await.unwrap_or_else(|_| Err(nobody())) {
        Ok(members) => {
            let (groups_per_node, founders) = shared.founding.clone();
            let admitted = Admitted { groups_per_node, founders, members };
            admitted.encode(&mut out).map_err(Broken::Output)?;
        }
        Err(sentence) => encode_sentence(&mut out, &sentence),
    }
    write(&mut line.socket, &mut out).await
}
