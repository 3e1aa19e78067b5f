//! What a session says about a login: to whoever checks passwords, and to operators. The client is told less.

use std::net::IpAddr;
use std::sync::Arc;

use certificates::NoUser;
use machine::{Catalog, User};
use oauth::Grant;

use crate::config::Config;

/// A password to be checked. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verify {
    pub user: String,
    pub password: Vec<u8>,
    /// Where the client is.
    pub peer: IpAddr,
    /// What is stored for the user; none for a user that does not exist or may not log in. The check
    /// is to take as long all the same.
    pub stored: Option<String>,
}

impl std::fmt::Debug for Verify {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Verify {{ user: {:?}, password: <hidden> }}", self.user)
    }
}

/// A token to be judged. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Judge {
    pub token: Vec<u8>,
    /// Where the client is.
    pub peer: IpAddr,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Judge {{ token: <hidden> }}")
    }
}

/// What a token gives, or why it gives nothing.
pub type Judged = Result<Arc<Grant>, oauth::Refusal>;

/// Whom a client's verified certificate names, or why it names nobody.
pub type Certified = Result<String, NoUser>;

/// Who a client is before it says a word. It may log in so (EXTERNAL).
#[derive(Clone, Debug)]
pub(crate) enum Proven {
    /// Its verified certificate names a user, or nobody.
    Certificate(Certified),
    /// The node has let this user in, and opens the session itself.
    User(String),
    /// The same with the owner of a token.
    Token(Arc<Grant>),
}

/// Whether `user`, who comes from `peer`, may log in here at all, whatever its proof is.
pub(crate) fn admit<'a>(
    catalog: &'a Catalog,
    config: &Config,
    user: &str,
    peer: IpAddr,
) -> Result<&'a User, LoginRefusal> {
    let known = catalog.user(user).ok_or(LoginRefusal::NoSuchUser)?;
    admit_from(config, user, peer)?;
    Ok(known)
}

/// Whether somebody of this name may come from there. Some users only from this machine: judged by where the peer is, not
/// by where we listen.
fn admit_from(config: &Config, user: &str, peer: IpAddr) -> Result<(), LoginRefusal> {
    let is_bound = config.loopback_users.iter().any(|bound| bound == user);
    match is_bound && !peer.to_canonical().is_loopback() {
        true => Err(LoginRefusal::LoopbackOnly),
        false => Ok(()),
    }
}

/// Whether the owner of a token, who comes from `peer`, may log in here: the catalog need not know the user.
///
/// # Errors
/// Why not.
pub(crate) fn admit_token(
    config: &Config,
    judged: Judged,
    peer: IpAddr,
) -> Result<Arc<Grant>, LoginRefusal> {
    let grant = judged.map_err(LoginRefusal::Token)?;
    admit_from(config, &grant.user, peer)?;
    Ok(grant)
}

/// What the password of `user`, who comes from `peer`, is held against, and why the login is refused if that is not it.
pub(crate) fn held_against(
    catalog: &Catalog,
    config: &Config,
    user: &str,
    peer: IpAddr,
) -> (Option<String>, LoginRefusal) {
    match admit(catalog, config, user, peer) {
        // It learns nothing about the password, not even by the time that the check takes.
        Err(why) => (None, why),
        Ok(user) if user.password_hash.is_empty() => (None, LoginRefusal::NoPassword),
        Ok(user) => (Some(user.password_hash.clone()), LoginRefusal::WrongPassword),
    }
}

/// What operators want to know of a login. The shell writes it to the log, unless there are too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A client is in.
    Connected { user: String, vhost: String, client: String },
    /// A login was refused. The client is not told why.
    Refused { user: String, mechanism: String, client: String, why: LoginRefusal },
    /// A client was closed without a verdict, because its password or token waited to be checked for too long.
    Unjudged { user: String },
}

/// Why a login was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    Unreadable,
    NoSuchUser,
    NoPassword,
    LoopbackOnly,
    WrongPassword,
    /// The client's certificate names no user.
    Certificate(NoUser),
    Token(oauth::Refusal),
    /// A token that renews a login is another user's.
    OtherUser,
    /// A token that renews a login gives nothing in its vhost.
    OtherVhost,
}

impl std::fmt::Display for LoginRefusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self {
            Self::Unreadable => "the response names no user or no password, or is too long",
            Self::NoSuchUser => "there is no such user",
            Self::NoPassword => "the user cannot log in with a password",
            Self::LoopbackOnly => {
                "the user may connect from this machine only, as loopback_users says; from elsewhere, use another user"
            }
            Self::WrongPassword => "the password is wrong",
            Self::Certificate(why) => return why.fmt(out),
            Self::Token(why) => return why.fmt(out),
            Self::OtherUser => "the new token is another user's",
            Self::OtherVhost => "the new token gives nothing in the vhost of the connection",
        };
        out.write_str(words)
    }
}
