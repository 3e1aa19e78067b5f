//! The handshake on a connection: who is at the other end, and does it know the secret.

use std::time::Duration;

use machine::NodeId;

use super::Shared;
use super::join::key;
use super::line::{Broken, Line, draw, read_frame, write};
use crate::peer::Error;
use crate::peer::gather::Gather;
use crate::peer::handshake::{
    Acquaintance, Greeting, Hello, Proof, Purpose, Refusal, encode_proof, encode_refusal, judge,
};
use crate::peer::limits::FRAME_BYTES_MAX_UNPROVED;

/// How long both sides may take together.
pub(super) const GREETING: Duration = Duration::from_secs(2);

/// Introduces us on a connection that we made to `expected`. A knock ends with the hello.
pub(super) async fn dialer(
    line: &mut Line,
    shared: &Shared,
    expected: NodeId,
    known: Acquaintance,
    purpose: Purpose,
) -> Result<Hello, Broken> {
    let greeting = async {
        let ours = Hello { purpose, nonce: draw(), ..shared.hello.clone() };
        let mut out = Gather::default();
        ours.encode(&mut out);
        write(&mut line.socket, &mut out).await?;
        if purpose == Purpose::Knock {
            return Ok(ours);
        }
        let theirs = hello(line).await?;
        let verdict = if theirs.node == expected || theirs.cluster != ours.cluster {
            judge(&ours, Some(known), &theirs)
        } else {
            Err(Refusal::OtherNode { node: theirs.node, expected })
        };
        if let Err(refusal) = verdict {
            // So that it is told there, too.
            encode_refusal(&mut out, &refusal);
            let _ = write(&mut line.socket, &mut out).await;
            return Err(Broken::Refused(refusal));
        }
        encode_proof(&mut out, &shared.secret.prove(true, &ours, &theirs));
        write(&mut line.socket, &mut out).await?;
        let proof = proof(line).await?;
        if !shared.secret.is_proof(&proof, false, &ours, &theirs) {
            return Err(Broken::Refused(Refusal::WrongSecret { node: theirs.node }));
        }
        Ok(theirs)
    };
    in_time(greeting).await
}

/// Introduces a node that has no cluster yet to a member of one.
pub(super) async fn joiner(
    line: &mut Line,
    ours: Hello,
    secret: Option<&str>,
) -> Result<Hello, Broken> {
    let greeting = async {
        let mut out = Gather::default();
        ours.encode(&mut out);
        write(&mut line.socket, &mut out).await?;
        let theirs = hello(line).await?;
        let secret = key(secret, theirs.cluster);
        encode_proof(&mut out, &secret.prove(true, &ours, &theirs));
        write(&mut line.socket, &mut out).await?;
        let proof = proof(line).await?;
        if !secret.is_proof(&proof, false, &ours, &theirs) {
            return Err(Broken::Refused(Refusal::WrongSecret { node: theirs.node }));
        }
        Ok(theirs)
    };
    in_time(greeting).await
}

/// Finds out who connected to us, and tells it if it is not welcome.
pub(super) async fn acceptor(line: &mut Line, shared: &Shared) -> Result<Hello, Broken> {
    let greeting = async {
        let mut out = Gather::default();
        let theirs = hello(line).await?;
        let ours = Hello { purpose: theirs.purpose, nonce: draw(), ..shared.hello.clone() };
        let known = shared.members().get(&theirs.node).map(|member| member.known());
        let mut verdict = judge(&ours, known, &theirs);
        if verdict.is_ok() {
            if theirs.purpose == Purpose::Knock {
                return Ok(theirs);
            }
            ours.encode(&mut out);
            write(&mut line.socket, &mut out).await?;
            let proof = proof(line).await?;
            if !shared.secret.is_proof(&proof, true, &theirs, &ours) {
                verdict = Err(Refusal::WrongSecret { node: theirs.node });
            }
        }
        if let Err(refusal) = verdict {
            encode_refusal(&mut out, &refusal);
            // It is going anyway.
            let _ = write(&mut line.socket, &mut out).await;
            return Err(Broken::Refused(refusal));
        }
        encode_proof(&mut out, &shared.secret.prove(false, &theirs, &ours));
        write(&mut line.socket, &mut out).await?;
        Ok(theirs)
    };
    in_time(greeting).await
}

async fn in_time<T>(greeting: impl Future<Output = Result<T, Broken>>) -> Result<T, Broken> {
    tokio::time::timeout(GREETING, greeting).await.unwrap_or(Err(Broken::Silent(GREETING)))
}

async fn hello(line: &mut Line) -> Result<Hello, Broken> {
    match greeting(line).await? {
        Greeting::Hello(hello) => Ok(hello),
        Greeting::Proof(_) => Err(Broken::Input(Error::Malformed("a proof before the hello"))),
        Greeting::Refused(text) => Err(Broken::RefusedByPeer(text)),
    }
}

async fn proof(line: &mut Line) -> Result<Proof, Broken> {
    match greeting(line).await? {
        Greeting::Proof(proof) => Ok(proof),
        Greeting::Hello(_) => Err(Broken::Input(Error::Malformed("a second hello"))),
        Greeting::Refused(text) => Err(Broken::RefusedByPeer(text)),
    }
}

async fn greeting(line: &mut Line) -> Result<Greeting, Broken> {
    let frame = read_frame(line, FRAME_BYTES_MAX_UNPROVED).await?;
    Greeting::decode(frame).map_err(Broken::Input)
}
