//! Who is at the other end: two challenges, then two proofs of the secret, then two hellos, which are
//! proved too.
//!
//! ```text
//! dialer                             acceptor
//!   Challenge  ───────────────────────>         versions of the protocol, a nonce
//!              <───────────────────────  Challenge
//!   Proof      ───────────────────────>         HMAC-SHA256 of both challenges under the secret
//!              <───────────────────────  Proof  (or Refused)
//!   Hello      ───────────────────────>         judged: cluster, node, incarnation, start
//!              <───────────────────────  Hello  (or Refused, with a sentence for the operator)
//!   Proof      ───────────────────────>         the same of both hellos: nobody changed them
//!              <───────────────────────  Proof  (or Refused)
//! ```
//!
//! Whoever does not know the secret learns the versions of the protocol, and nothing else. The nonces
//! make a proof good for one connection only.

use bytes::Bytes;
use hmac::{Hmac, Mac};
use machine::{NodeId, Version};
use sha2::{Digest, Sha256};

use super::Error;
use super::frame::{Frame, Kind};
use super::gather::Gather;
use super::limits::REFUSAL_BYTES_MAX;
use super::reader::Reader;

/// Versions of the protocol that this program speaks: the lowest and the highest. See [`Version`]. With 4 came
/// [`Message::Reaches`](super::message::Message::Reaches), with 6 [`Message::Voters`](super::message::Message::Voters)
/// and [`Message::Renewed`](super::message::Message::Renewed), with 9
/// [`Message::Question`](super::message::Message::Question) and [`Message::Told`](super::message::Message::Told).
pub const PROTOCOLS: (u16, u16) = (Version::OLDEST.0, Version::NEWEST.0);

const MAGIC: [u8; 8] = *b"millrace";
const NONCE_BYTES: usize = 16;

/// What both sides draw anew for every connection.
pub type Nonce = [u8; NONCE_BYTES];

/// Shows that its sender knows the cluster's secret.
pub type Proof = [u8; 32];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Everything but snapshots. The node with the greater id dials.
    Data,
    /// Snapshots, from the dialer to the acceptor.
    Bulk,
    /// Nothing: a node with a smaller id has started and wants to be dialed.
    Knock,
    /// A node of no cluster wants to be taken in.
    Join,
}

/// What either side says first. Holds nothing that a stranger may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Lowest and highest version of the protocol.
    pub protocols: (u16, u16),
    pub nonce: Nonce,
}

/// How a node introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest version of the protocol, and of the log.
    pub protocols: (u16, u16),
    pub cluster: u128,
    pub node: NodeId,
    /// Drawn when the node's data directory was made.
    pub incarnation: u64,
    /// Number of the node's start: grows with every start.
    pub boot: u64,
    /// The stamp that its data directory had before that: of the start before, or renewed while that one ran.
    pub last_boot: u64,
    pub purpose: Purpose,
    pub nonce: Nonce,
}

/// What is known of a member from earlier connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acquaintance {
    /// `None`: it was never met.
    pub incarnation: Option<u64>,
    /// Of its latest connection, or the latest that is in the log.
    pub boot: u64,
    /// The newest stamp that its data directory is known to have had; at least `boot`. Only a directory that has
    /// it, or a newer one, is not an older copy.
    pub stamp: u64,
}

impl Acquaintance {
    /// Of whom nothing but the latest start is known.
    pub fn of_start(incarnation: Option<u64>, boot: u64) -> Self {
        Self { incarnation, boot, stamp: boot }
    }

    /// What is known of a node that was let in with this hello.
    #[must_use]
    pub fn met(self, hello: &Hello) -> Self {
        let known = Self::of_start(Some(hello.incarnation), hello.boot);
        match self.incarnation {
            Some(incarnation) if incarnation != hello.incarnation => known,
            Some(_) | None => Self { stamp: self.stamp.max(known.stamp), ..known },
        }
    }

    /// The cluster's log says this of the node. Says whether that is a later start than the one that was known.
    pub fn learn(&mut self, incarnation: Option<u64>, boot: u64) -> bool {
        if incarnation.is_some() && self.incarnation != incarnation {
            *self = Self::of_start(incarnation, boot);
            return false;
        }
        let is_later = boot > self.boot;
        if is_later {
            (self.boot, self.stamp) = (boot, self.stamp.max(boot));
        }
        is_later
    }

    /// The node says that its start `boot` has written down `stamp`. Says whether that is news. What another start
    /// says is nothing: a twin that was cut off counts on, too.
    pub fn renewed(&mut self, boot: u64, stamp: u64) -> bool {
        let is_news = boot == self.boot && stamp > self.stamp;
        if is_news {
            self.stamp = stamp;
        }
        is_news
    }
}

/// Why a node is not talked to: a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Protocol {
        theirs: (u16, u16),
    },
    OtherCluster {
        node: NodeId,
        theirs: u128,
        ours: u128,
    },
    SameNode {
        node: NodeId,
    },
    UnknownNode {
        node: NodeId,
    },
    OtherIncarnation {
        node: NodeId,
        theirs: u64,
        known: u64,
    },
    EarlierBoot {
        node: NodeId,
        theirs: u64,
        known: u64,
    },
    /// It was a member.
    Removed {
        node: NodeId,
    },
    /// Another start of it is here.
    Twin {
        node: NodeId,
    },
    OtherNode {
        node: NodeId,
        expected: NodeId,
    },
    /// The cluster may write what it cannot read.
    Outdated {
        node: NodeId,
        speaks: Version,
        agreed: Version,
    },
    WrongSecret,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Protocol { theirs: (low, high) } => write!(
                out,
                "the other node speaks versions {low} to {high} of the peer protocol, this node {} to \
                 {}: upgrade the older of the two nodes",
                PROTOCOLS.0, PROTOCOLS.1
            ),
            Self::OtherCluster { node, theirs, ours } => write!(
                out,
                "node {} belongs to cluster {theirs:032x}, this node to cluster {ours:032x}: give all \
                 nodes the same --peers list, and each the data directory that is its own",
                node.0
            ),
            Self::SameNode { node } => write!(
                out,
                "two nodes have the id {}: give each node its own --node-id and data directory",
                node.0
            ),
            Self::UnknownNode { node } => write!(
                out,
                "node {} is not a member of this cluster: add it with `millrace cluster add`, or name \
                 it in the --peers list of every node",
                node.0
            ),
            Self::OtherIncarnation { node, theirs, known } => write!(
                out,
                "node {} comes with incarnation {theirs:016x}, but the cluster knows {known:016x}: the node has \
                 another data directory, without the votes and messages that it promised to keep. Start it \
                 with its old data directory, or run `millrace cluster replace {} NEW` on another member",
                node.0, node.0
            ),
            Self::EarlierBoot { node, theirs, known } => write!(
                out,
                "node {} comes with stamp {theirs} in its data directory, and came with stamp {known} before: its \
                 data directory is an old copy. Start the node with its newest directory, or run `millrace \
                 cluster replace {} NEW` on another member",
                node.0, node.0
            ),
            Self::Removed { node } => write!(
                out,
                "node {} was removed from this cluster, and its number is never given again: stop it. Its \
                 machine can come back with an empty data directory and a new number; see `millrace \
                 cluster add`",
                node.0
            ),
            Self::Twin { node } => write!(
                out,
                "node {} is here already: two processes run on copies of one data directory. Stop this \
                 one. If the other has ended, this one is let in within a second",
                node.0
            ),
            Self::OtherNode { node, expected } => write!(
                out,
                "the address of node {} is answered by node {}: correct the --peers list",
                expected.0, node.0
            ),
            Self::Outdated { node, speaks, agreed } => write!(
                out,
                "node {} reads versions up to {speaks}, and its cluster has agreed on version {agreed}: upgrade \
                 node {}",
                node.0, node.0
            ),
            Self::WrongSecret => out.write_str(
                "the node at the other end does not know this cluster's secret: set the same \
                 cluster_secret on all nodes; `millrace cluster token` on a member prints it",
            ),
        }
    }
}

impl Refusal {
    /// Whether it does not pass by itself: the node that hears it is to end.
    pub fn is_final(&self) -> bool {
        match self {
            Self::OtherIncarnation { .. } | Self::EarlierBoot { .. } | Self::Removed { .. } => true,
            Self::Protocol { .. }
            | Self::OtherCluster { .. }
            | Self::SameNode { .. }
            | Self::UnknownNode { .. }
            | Self::Twin { .. }
            | Self::OtherNode { .. }
            | Self::Outdated { .. }
            | Self::WrongSecret => false,
        }
    }
}

/// Whether a node that introduces itself as `theirs` may be talked to by `ours`. `known`: it is a
/// member, and this is what is known of it.
pub fn judge(ours: &Hello, known: Option<Acquaintance>, theirs: &Hello) -> Result<(), Refusal> {
    let node = theirs.node;
    // Who wants to join has no cluster yet.
    let is_joining = theirs.purpose == Purpose::Join;
    if theirs.cluster != ours.cluster && !(is_joining && theirs.cluster == 0) {
        let (theirs, ours) = (theirs.cluster, ours.cluster);
        return Err(Refusal::OtherCluster { node, theirs, ours });
    }
    if node == ours.node {
        return Err(Refusal::SameNode { node });
    }
    if is_joining {
        return Ok(());
    }
    let Some(Acquaintance { incarnation, boot, stamp }) = known else {
        return Err(Refusal::UnknownNode { node });
    };
    match incarnation {
        Some(known) if known != theirs.incarnation => {
            Err(Refusal::OtherIncarnation { node, theirs: theirs.incarnation, known })
        }
        // The same process again, or one that was started with what it has written last.
        Some(_) if theirs.boot != boot && theirs.last_boot < stamp => {
            Err(Refusal::EarlierBoot { node, theirs: theirs.last_boot, known: stamp })
        }
        Some(_) | None => Ok(()),
    }
}

impl Challenge {
    /// The version of the protocol that both sides speak, where they have one.
    pub fn common(&self) -> u16 {
        self.protocols.1.min(PROTOCOLS.1)
    }
}

/// Whether the node that sent this challenge speaks a version of the protocol that this node speaks.
pub fn judge_challenge(theirs: &Challenge) -> Result<(), Refusal> {
    let (low, high) = theirs.protocols;
    if low > PROTOCOLS.1 || high < PROTOCOLS.0 {
        return Err(Refusal::Protocol { theirs: theirs.protocols });
    }
    Ok(())
}

/// The cluster's secret, as a key.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// From what is configured, or kept in the data directory.
    pub fn new(text: &str) -> Self {
        if let Some(cluster) = cluster_named(text) {
            return Self::of_cluster(cluster);
        }
        Self(Sha256::new().chain_update("millrace secret\0").chain_update(text).finalize().into())
    }

    /// What a cluster that was founded before there were secrets goes on with. Protects against
    /// mistakes only.
    fn of_cluster(cluster: u128) -> Self {
        let digest = Sha256::new().chain_update("millrace cluster\0");
        Self(digest.chain_update(cluster.to_le_bytes()).finalize().into())
    }

    /// The proof that the dialer or the acceptor knows the secret, sent before any hello.
    pub fn answer(&self, is_dialer: bool, dialer: &Challenge, acceptor: &Challenge) -> Proof {
        self.mac_of_challenges(is_dialer, dialer, acceptor).finalize().into_bytes().into()
    }

    /// Whether that is right. Takes as long for a wrong one.
    pub fn is_answer(
        &self,
        proof: &Proof,
        is_dialer: bool,
        dialer: &Challenge,
        acceptor: &Challenge,
    ) -> bool {
        self.mac_of_challenges(is_dialer, dialer, acceptor).verify_slice(proof).is_ok()
    }

    fn mac_of_challenges(
        &self,
        is_dialer: bool,
        dialer: &Challenge,
        acceptor: &Challenge,
    ) -> Hmac<Sha256> {
        let mac = Hmac::new_from_slice(&self.0).expect("a key of HMAC may have any length");
        // Not what is said of hellos, which are longer and begin with 0 or 1.
        mac.chain_update([2 + u8::from(is_dialer)])
            .chain_update(dialer.bytes())
            .chain_update(acceptor.bytes())
    }

    /// What the dialer or the acceptor sends after both have said hello.
    pub fn prove(&self, is_dialer: bool, dialer: &Hello, acceptor: &Hello) -> Proof {
        self.mac(is_dialer, dialer, acceptor).finalize().into_bytes().into()
    }

    /// Whether a proof is right. Takes as long for a wrong one.
    pub fn is_proof(
        &self,
        proof: &Proof,
        is_dialer: bool,
        dialer: &Hello,
        acceptor: &Hello,
    ) -> bool {
        self.mac(is_dialer, dialer, acceptor).verify_slice(proof).is_ok()
    }

    fn mac(&self, is_dialer: bool, dialer: &Hello, acceptor: &Hello) -> Hmac<Sha256> {
        let mac = Hmac::new_from_slice(&self.0).expect("a key of HMAC may have any length");
        mac.chain_update([u8::from(is_dialer)])
            .chain_update(dialer.bytes())
            .chain_update(acceptor.bytes())
    }
}

/// What begins the secret of a cluster that has none: the rest is its id, in hexadecimal.
const NO_SECRET: &str = "cluster-";

/// The secret of a cluster that was founded before there were any, as a text.
pub fn no_secret(cluster: u128) -> String {
    format!("{NO_SECRET}{cluster:032x}")
}

/// Whether that is no secret, but the id of a cluster that has none.
pub fn is_no_secret(text: &str) -> bool {
    cluster_named(text).is_some()
}

fn cluster_named(text: &str) -> Option<u128> {
    let digits = text.strip_prefix(NO_SECRET).filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok()
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret")
    }
}

impl Challenge {
    const BYTES: usize = 8 + 2 + 2 + NONCE_BYTES;

    fn bytes(&self) -> [u8; Self::BYTES] {
        let Self { protocols, nonce } = self;
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&protocols.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&protocols.1.to_le_bytes());
        bytes[12..].copy_from_slice(nonce);
        bytes
    }

    pub fn encode(&self, out: &mut Gather) {
        frame(out, Kind::Challenge, &self.bytes());
    }

    fn decode(body: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(body, "a challenge");
        if reader.array()? != MAGIC {
            return Err(reader.malformed());
        }
        let protocols = (u16::from_le_bytes(reader.array()?), u16::from_le_bytes(reader.array()?));
        let challenge = Self { protocols, nonce: reader.array()? };
        reader.end()?;
        Ok(challenge)
    }
}

impl Hello {
    const BYTES: usize = 8 + 2 + 2 + 16 + 4 * 8 + 1 + NONCE_BYTES;

    /// The newest version that the node reads.
    pub fn speaks(&self) -> Version {
        Version(self.protocols.1)
    }

    /// Always as long, so that two of them in a row are read in one way only.
    fn bytes(&self) -> [u8; Self::BYTES] {
        let Self { protocols, cluster, node, incarnation, boot, last_boot, purpose, nonce } = self;
        let purpose = match purpose {
            Purpose::Data => 1,
            Purpose::Bulk => 2,
            Purpose::Knock => 3,
            Purpose::Join => 4,
        };
        let mut bytes = [0; Self::BYTES];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            let (place, after) = std::mem::take(&mut rest).split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = after;
        };
        put(&MAGIC);
        put(&protocols.0.to_le_bytes());
        put(&protocols.1.to_le_bytes());
        put(&cluster.to_le_bytes());
        put(&node.0.to_le_bytes());
        put(&incarnation.to_le_bytes());
        put(&boot.to_le_bytes());
        put(&last_boot.to_le_bytes());
        put(&[purpose]);
        put(nonce);
        bytes
    }

    pub fn encode(&self, out: &mut Gather) {
        frame(out, Kind::Hello, &self.bytes());
    }

    fn decode(body: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(body, "a hello");
        if reader.array()? != MAGIC {
            return Err(reader.malformed());
        }
        let protocols = (u16::from_le_bytes(reader.array()?), u16::from_le_bytes(reader.array()?));
        let cluster = u128::from_le_bytes(reader.array()?);
        let node = NodeId(u64::from_le_bytes(reader.array()?));
        let incarnation = u64::from_le_bytes(reader.array()?);
        let boot = u64::from_le_bytes(reader.array()?);
        let last_boot = u64::from_le_bytes(reader.array()?);
        let purpose = match reader.u8()? {
            1 => Purpose::Data,
            2 => Purpose::Bulk,
            3 => Purpose::Knock,
            4 => Purpose::Join,
            _ => return Err(reader.malformed()),
        };
        let nonce = reader.array()?;
        let hello = Self { protocols, cluster, node, incarnation, boot, last_boot, purpose, nonce };
        reader.end()?;
        Ok(hello)
    }
}

/// What may come before a connection is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    Challenge(Challenge),
    Hello(Hello),
    Proof(Proof),
    /// The sentence, with nothing in it that is not printable.
    Refused(String),
    /// The same, for good.
    Expelled(String),
}

impl Greeting {
    pub fn decode(frame: Frame) -> Result<Self, Error> {
        let Frame { kind, body } = frame;
        match kind {
            Kind::Challenge => Challenge::decode(body).map(Self::Challenge),
            Kind::Hello => Hello::decode(body).map(Self::Hello),
            Kind::Proof => {
                let mut reader = Reader::new(body, "a proof");
                let proof = reader.array()?;
                reader.end()?;
                Ok(Self::Proof(proof))
            }
            Kind::Refused => Ok(Self::Refused(sentence(&body))),
            Kind::Expelled => Ok(Self::Expelled(sentence(&body))),
            Kind::Raft
            | Kind::Join
            | Kind::Requests
            | Kind::SessionGone
            | Kind::NumberedBatch
            | Kind::Answers
            | Kind::Committed
            | Kind::NotLeader
            | Kind::Leads
            | Kind::Snapshot
            | Kind::SnapshotTaken
            | Kind::Reaches
            | Kind::Voters
            | Kind::Renewed
            | Kind::Question
            | Kind::Told
            | Kind::Digest
            | Kind::Borrow
            | Kind::Lent
            | Kind::Enter
            | Kind::Entered
            | Kind::Ping => Err(Error::Malformed("a message before the handshake")),
        }
    }
}

pub fn encode_proof(out: &mut Gather, proof: &Proof) {
    frame(out, Kind::Proof, proof);
}

pub fn encode_refusal(out: &mut Gather, refusal: &Refusal) {
    let text = refusal.to_string();
    let kind = if refusal.is_final() { Kind::Expelled } else { Kind::Refused };
    frame(out, kind, &text.as_bytes()[..text.len().min(REFUSAL_BYTES_MAX)]);
}

/// What a refusal says, as far as it can be printed.
fn sentence(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let is_plain = |letter: &char| matches!(letter, ' '..='~');
    text.chars().filter(is_plain).take(REFUSAL_BYTES_MAX).collect()
}

/// A refusal that has nothing to do with who is asking.
pub fn encode_sentence(out: &mut Gather, text: &str) {
    frame(out, Kind::Refused, &text.as_bytes()[..text.len().min(REFUSAL_BYTES_MAX)]);
}

fn frame(out: &mut Gather, kind: Kind, body: &[u8]) {
    out.begin(kind);
    out.array(body);
    out.end().expect("what a handshake says is short");
}
