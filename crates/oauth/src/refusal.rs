//! Why a token is no login. It is for operators: none of the token stands in it.

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    TooLong,
    Unreadable,
    /// It names an algorithm that is not allowed, `none` for one, or another than its key is for.
    Algorithm,
    /// Its header asks for what is not known here.
    Critical,
    /// It names a key that is not there; or no key, where several are.
    UnknownKey,
    Signature,
    NoExpiry,
    Expired,
    NotYet,
    Issuer,
    Audience,
    /// None of the claims that may name the user is there.
    NoUser,
    /// The name is empty, longer than 255 bytes, or has a control character.
    UserName,
    TooManyScopes,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::TooLong => "the token is longer than 16 KiB",
            Self::Unreadable => "the token is no JWT that can be read",
            Self::Algorithm => {
                "the token is signed with an algorithm that oauth_algorithms or its key does not allow"
            }
            Self::Critical => "the token's header asks for an extension that is not known here (crit)",
            Self::UnknownKey => {
                "the token's key is not among the keys of oauth_jwks_file or oauth_jwks_url; if it is new, the next \
                 login may find it"
            }
            Self::Signature => "the token's signature is wrong",
            Self::NoExpiry => "the token has no expiry (exp), or one that is no number",
            Self::Expired => "the token has expired",
            Self::NotYet => {
                "the token is not valid yet (nbf), or says that with no number; compare the clocks"
            }
            Self::Issuer => "the token's issuer (iss) is not oauth_issuer",
            Self::Audience => "the token's audience (aud) does not have oauth_resource_server_id",
            Self::NoUser => {
                "the token names no user: it has no claim of oauth_preferred_username_claims, no sub and no client_id"
            }
            Self::UserName => {
                "the token's user name is empty, longer than 255 bytes, or has a control character"
            }
            Self::TooManyScopes => "the token has more than 1,024 scopes for this node",
        })
    }
}

impl std::error::Error for Refusal {}
