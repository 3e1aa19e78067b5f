//! OAuth 2: what a signed token (JWT) says of who shows it, and what it lets its owner do.
//!
//! [`judge`] is the core: a token, the keys of those who may sign, and the rules of this node make a [`Grant`] or a
//! [`Refusal`]. It is told the time. The shell around it is in [`io`]: keys from a file or an HTTPS server, and read again.
//! What a grant's rights are asked for is not known here, nor is who asks.

mod claims;
mod code;
mod grant;
pub mod io;
mod keys;
pub mod limits;
mod refusal;
mod rules;
mod scope;
mod token;

pub use code::{Attempt, Chance, CodeLogin};
pub use grant::Grant;
pub use keys::Keys;
pub use refusal::Refusal;
pub use rules::{Rules, algorithms};
pub use scope::Right;
pub use token::{judge, looks_like_token};

#[cfg(test)]
mod samples;
