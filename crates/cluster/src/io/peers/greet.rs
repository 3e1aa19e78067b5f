//! The handshake on a connection: does the other end know the secret, and who is it.

use std::time::Duration;

use machine::NodeId;

use super::Shared;
use super::line::{Broken, Line, draw, read_frame, write};
use crate::peer::Error;
use crate::peer::gather::Gather;
use crate::peer::handshake::{
    Acquaintance, Challenge, Greeting, Hello, PROTOCOLS, Proof, Purpose, Refusal, Secret,
    encode_proof, encode_refusal, judge, judge_challenge,
};
use crate::peer::limits::FRAME_BYTES_MAX_UNPROVED;

/// How long both sides may take together.
pub(super) const GREETING: Duration = Duration::from_secs(2);

/// Introduces us on a connection that we made to `expected`. A knock ends with the hello,
/// or with the refusal.
pub(super) async fn dialer(
    line: &mut Line,
    shared: &Shared,
    expected: NodeId,
    known: Acquaintance,
    purpose: Purpose,
) -> Result<Hello, Broken> {
    let greeting = async {
        challenge(line, &shared.secret).await.map_err(unproved)?;
        let ours = Hello { purpose, nonce: draw(), ..shared.hello.clone() };
        let mut out = Gather::default();
        ours.encode(&mut out);
        write(&mut line.socket, &mut out).await?;
        if purpose == Purpose::Knock {
            return match hello(line).await {
                Ok(_) | Err(Broken::Closed) => Ok(ours),
                Err(why) => Err(why),
            };
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
            return Err(Broken::Refused(Refusal::WrongSecret));
        }
        Ok(theirs)
    };
    shared.note_expulsion(in_time(greeting).await)
}

/// Introduces a node that has no cluster yet to a member of one.
pub(super) async fn joiner(line: &mut Line, ours: Hello, secret: &Secret) -> Result<Hello, Broken> {
    let greeting = async {
        challenge(line, secret).await.map_err(unproved)?;
        let mut out = Gather::default();
        ours.encode(&mut out);
        write(&mut line.socket, &mut out).await?;
        let theirs = hello(line).await?;
        encode_proof(&mut out, &secret.prove(true, &ours, &theirs));
        write(&mut line.socket, &mut out).await?;
        let proof = proof(line).await?;
        if !secret.is_proof(&proof, false, &ours, &theirs) {
            return Err(Broken::Refused(Refusal::WrongSecret));
        }
        Ok(theirs)
    };
    in_time(greeting).await
}

/// Finds out who connected to us, and tells it if it is not welcome.
pub(super) async fn acceptor(line: &mut Line, shared: &Shared) -> Result<Hello, Broken> {
    let greeting = async {
        be_challenged(line, &shared.secret).await.map_err(unproved)?;
        let mut out = Gather::default();
        let theirs = hello(line).await?;
        let ours = Hello { purpose: theirs.purpose, nonce: draw(), ..shared.hello.clone() };
        let mut verdict = shared.judge(&ours, &theirs);
        if verdict.is_ok() {
            if theirs.purpose == Purpose::Knock {
                return Ok(theirs);
            }
            ours.encode(&mut out);
            write(&mut line.socket, &mut out).await?;
            let proof = proof(line).await?;
            if !shared.secret.is_proof(&proof, true, &theirs, &ours) {
                verdict = Err(Refusal::WrongSecret);
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
    shared.note_expulsion(in_time(greeting).await)
}

/// The dialer's half of the challenge: proves the secret to the node that was dialed, and checks that node's proof.
async fn challenge(line: &mut Line, secret: &Secret) -> Result<(), Broken> {
    let ours = Challenge { protocols: PROTOCOLS, nonce: draw() };
    let mut out = Gather::default();
    ours.encode(&mut out);
    write(&mut line.socket, &mut out).await?;
    let theirs = match greeting(line).await? {
        Greeting::Challenge(challenge) => challenge,
        other @ (Greeting::Hello(_)
        | Greeting::Proof(_)
        | Greeting::Refused(_)
        | Greeting::Expelled(_)) => return Err(unexpected(other)),
    };
    judge_challenge(&theirs).map_err(Broken::Refused)?;
    line.protocol = theirs.common();
    encode_proof(&mut out, &secret.answer(true, &ours, &theirs));
    write(&mut line.socket, &mut out).await?;
    let proof = proof(line).await?;
    if !secret.is_answer(&proof, false, &ours, &theirs) {
        return Err(Broken::Refused(Refusal::WrongSecret));
    }
    Ok(())
}

/// The acceptor's half of the challenge: the node that dialed has to prove the secret first.
async fn be_challenged(line: &mut Line, secret: &Secret) -> Result<(), Broken> {
    let mut out = Gather::default();
    let theirs = match greeting(line).await? {
        Greeting::Challenge(challenge) => challenge,
        other @ (Greeting::Hello(_)
        | Greeting::Proof(_)
        | Greeting::Refused(_)
        | Greeting::Expelled(_)) => return Err(unexpected(other)),
    };
    let mut verdict = judge_challenge(&theirs);
    if verdict.is_ok() {
        let ours = Challenge { protocols: PROTOCOLS, nonce: draw() };
        ours.encode(&mut out);
        write(&mut line.socket, &mut out).await?;
        let proof = proof(line).await?;
        if secret.is_answer(&proof, true, &theirs, &ours) {
            line.protocol = theirs.common();
            encode_proof(&mut out, &secret.answer(false, &theirs, &ours));
            return write(&mut line.socket, &mut out).await;
        }
        verdict = Err(Refusal::WrongSecret);
    }
    match verdict {
        Ok(()) => Ok(()),
        Err(refusal) => {
            encode_refusal(&mut out, &refusal);
            // It is going anyway.
            let _ = write(&mut line.socket, &mut out).await;
            Err(Broken::Refused(refusal))
        }
    }
}

/// Something that does not come at this point.
fn unexpected(greeting: Greeting) -> Broken {
    match greeting {
        Greeting::Challenge(_) => Broken::Input(Error::Malformed("a second challenge")),
        Greeting::Hello(_) => Broken::Input(Error::Malformed("a hello before its turn")),
        Greeting::Proof(_) => Broken::Input(Error::Malformed("a proof before its turn")),
        Greeting::Refused(text) => Broken::RefusedByPeer(text),
        Greeting::Expelled(text) => Broken::Expelled(text),
    }
}

/// An answer counts only from a node that has proved the secret.
fn unproved(why: Broken) -> Broken {
    match why {
        Broken::Expelled(text) => Broken::RefusedByPeer(text),
        why @ (Broken::Closed
        | Broken::Silent(_)
        | Broken::Socket(_)
        | Broken::Input(_)
        | Broken::Output(_)
        | Broken::Overflow
        | Broken::Refused(_)
        | Broken::RefusedByPeer(_)
        | Broken::Replaced
        | Broken::Tls(_)) => why,
    }
}

async fn in_time<T>(greeting: impl Future<Output = Result<T, Broken>>) -> Result<T, Broken> {
    tokio::time::timeout(GREETING, greeting).await.unwrap_or(Err(Broken::Silent(GREETING)))
}

async fn hello(line: &mut Line) -> Result<Hello, Broken> {
    match greeting(line).await? {
        Greeting::Hello(hello) => Ok(hello),
        other @ (Greeting::Challenge(_)
        | Greeting::Proof(_)
        | Greeting::Refused(_)
        | Greeting::Expelled(_)) => Err(unexpected(other)),
    }
}

async fn proof(line: &mut Line) -> Result<Proof, Broken> {
    match greeting(line).await? {
        Greeting::Proof(proof) => Ok(proof),
        other @ (Greeting::Challenge(_)
        | Greeting::Hello(_)
        | Greeting::Refused(_)
        | Greeting::Expelled(_)) => Err(unexpected(other)),
    }
}

async fn greeting(line: &mut Line) -> Result<Greeting, Broken> {
    let frame = read_frame(line, FRAME_BYTES_MAX_UNPROVED).await?;
    Greeting::decode(frame).map_err(Broken::Input)
}
