//! How many connections and channels users and vhosts have: what their limits are held against.

use std::cell::RefCell;
use std::collections::BTreeMap;

use machine::{NodeId, SessionId};

/// What a session asks of the node's count before it takes more.
pub trait Quotas {
    /// One more connection, if the limits leave room for it. It counts until the shell says that the session is over.
    ///
    /// # Errors
    /// What is full. Nothing was counted.
    fn connect(&self, newcomer: Newcomer<'_>) -> Result<(), Full>;

    /// Channels of the user's other connections.
    fn channels_of_others(&self, session: SessionId, user: &str) -> u64;
}

/// A connection that wants to count, and how many there may be with it.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer<'a> {
    pub session: SessionId,
    pub user: &'a str,
    pub vhost: &'a str,
    pub user_max: Option<u32>,
    pub vhost_max: Option<u32>,
}

/// Which limit leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    User { max: u32 },
    Vhost { max: u32 },
}

/// A node's count, with what other nodes have told of theirs.
#[derive(Debug, Default)]
pub struct Population {
    sessions: BTreeMap<SessionId, Member>,
    here: Census,
    elsewhere: BTreeMap<NodeId, Census>,
}

/// What is counted of one session.
#[derive(Debug)]
struct Member {
    user: String,
    vhost: String,
    channels: u64,
}

/// Of a node that is one thread: a simulated one.
impl Quotas for RefCell<Population> {
    fn connect(&self, newcomer: Newcomer<'_>) -> Result<(), Full> {
        self.borrow_mut().connect(newcomer)
    }

    fn channels_of_others(&self, session: SessionId, user: &str) -> u64 {
        self.borrow().channels_of_others(session, user)
    }
}

/// What a node has of each user and vhost: of those that have something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections and channels.
    pub users: BTreeMap<String, (u64, u64)>,
    /// Connections.
    pub vhosts: BTreeMap<String, u64>,
}

impl Population {
    /// As [`Quotas::connect`].
    pub fn connect(&mut self, newcomer: Newcomer<'_>) -> Result<(), Full> {
        let Newcomer { session, user, vhost, user_max, vhost_max } = newcomer;
        let nodes = || self.elsewhere.values().chain([&self.here]);
        let of_vhost: u64 = nodes().filter_map(|node| node.vhosts.get(vhost)).sum();
        let of_user: u64 = nodes().filter_map(|node| node.users.get(user)).map(|(it, _)| it).sum();
        if let Some(max) = vhost_max.filter(|max| of_vhost >= u64::from(*max)) {
            return Err(Full::Vhost { max });
        }
        let of_user = of_user.saturating_sub(u64::from(planted::is("limit_admits_one_more")));
        if let Some(max) = user_max.filter(|max| of_user >= u64::from(*max)) {
            return Err(Full::User { max });
        }
        let member = Member { user: user.to_owned(), vhost: vhost.to_owned(), channels: 0 };
        let before = self.sessions.insert(session, member);
        debug_assert!(before.is_none(), "a session opens once");
        self.here.users.entry(user.to_owned()).or_default().0 += 1;
        *self.here.vhosts.entry(vhost.to_owned()).or_default() += 1;
        Ok(())
    }

    /// As [`Quotas::channels_of_others`].
    pub fn channels_of_others(&self, session: SessionId, user: &str) -> u64 {
        let nodes = self.elsewhere.values().chain([&self.here]);
        let all: u64 = nodes.filter_map(|node| node.users.get(user)).map(|(_, it)| it).sum();
        let own = self.sessions.get(&session).map_or(0, |member| member.channels);
        all.saturating_sub(own)
    }

    /// The session has so many channels now.
    pub fn set_channels(&mut self, session: SessionId, channels: u64) {
        let Some(member) = self.sessions.get_mut(&session) else { return };
        let before = std::mem::replace(&mut member.channels, channels);
        if let Some((_, of_user)) = self.here.users.get_mut(&member.user) {
            *of_user = *of_user + channels - before;
        }
    }

    /// The session is over. One that never counted is no matter.
    pub fn leave(&mut self, session: SessionId) {
        let Some(Member { user, vhost, channels }) = self.sessions.remove(&session) else { return };
        if let Some((connections, of_user)) = self.here.users.get_mut(&user) {
            *connections -= 1;
            *of_user -= channels;
            if *connections == 0 {
                self.here.users.remove(&user);
            }
        }
        if let Some(connections) = self.here.vhosts.get_mut(&vhost) {
            *connections -= 1;
            if *connections == 0 {
                self.here.vhosts.remove(&vhost);
            }
        }
    }

    /// What this node has.
    pub fn census(&self) -> &Census {
        &self.here
    }

    /// What the other nodes have said that they have. One that is not among them, because it is out of reach or of the
    /// cluster no longer, has nothing.
    pub fn told(&mut self, elsewhere: BTreeMap<NodeId, Census>) {
        self.elsewhere = elsewhere;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomer(session: u64, user_max: Option<u32>, vhost_max: Option<u32>) -> Newcomer<'static> {
        Newcomer { session: SessionId(session), user: "ann", vhost: "v", user_max, vhost_max }
    }

    #[test]
    fn a_limit_is_reached_exactly_and_room_comes_back() {
        let mut population = Population::default();
        assert_eq!(population.connect(newcomer(1, Some(2), Some(3))), Ok(()));
        assert_eq!(population.connect(newcomer(2, Some(2), Some(3))), Ok(()));
        assert_eq!(population.connect(newcomer(3, Some(2), Some(3))), Err(Full::User { max: 2 }));
        assert_eq!(population.connect(newcomer(3, None, Some(2))), Err(Full::Vhost { max: 2 }));
        assert_eq!(population.connect(newcomer(3, Some(0), None)), Err(Full::User { max: 0 }));
        population.leave(SessionId(3));
        population.leave(SessionId(1));
        assert_eq!(population.connect(newcomer(3, Some(2), Some(2))), Ok(()));
        population.leave(SessionId(2));
        population.leave(SessionId(3));
        assert_eq!(*population.census(), Census::default(), "nothing is kept of who left");
    }

    #[test]
    fn channels_of_a_users_other_connections_count() {
        let mut population = Population::default();
        population.connect(newcomer(1, None, None)).unwrap();
        population.connect(newcomer(2, None, None)).unwrap();
        population.set_channels(SessionId(1), 3);
        population.set_channels(SessionId(2), 4);
        assert_eq!(population.channels_of_others(SessionId(2), "ann"), 3);
        population.set_channels(SessionId(1), 1);
        assert_eq!(population.channels_of_others(SessionId(2), "ann"), 1);
        population.leave(SessionId(1));
        assert_eq!(population.channels_of_others(SessionId(2), "ann"), 0);
        assert_eq!(population.channels_of_others(SessionId(1), "ann"), 4);
    }

    #[test]
    fn what_other_nodes_have_counts_until_they_have_it_no_more() {
        let mut population = Population::default();
        let census = Census {
            users: BTreeMap::from([("ann".to_owned(), (2, 5))]),
            vhosts: BTreeMap::from([("v".to_owned(), 2)]),
        };
        population.told(BTreeMap::from([(NodeId(2), census)]));
        assert_eq!(population.connect(newcomer(1, Some(2), None)), Err(Full::User { max: 2 }));
        assert_eq!(population.connect(newcomer(1, None, Some(2))), Err(Full::Vhost { max: 2 }));
        assert_eq!(population.channels_of_others(SessionId(1), "ann"), 5);
        population.told(BTreeMap::new());
        assert_eq!(population.connect(newcomer(1, Some(1), Some(1))), Ok(()));
    }
}
