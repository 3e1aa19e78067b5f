//! What this node asks of tokens.

use jsonwebtoken::Algorithm;

/// What a token must be, and where in it what is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What this node is called in tokens: their audience.
    pub resource_server_id: String,
    /// What stands before each scope that is about this node.
    pub scope_prefix: String,
    /// Who must have issued them. `None`: whoever has the key.
    pub issuer: Option<String>,
    /// Whether the audience must be this node.
    pub checks_audience: bool,
    /// More claims that hold scopes, beside `scope`: names, or paths with dots.
    pub scope_claims: Vec<String>,
    /// The claims that may name the user, the first one first. `sub` and `client_id` follow.
    pub username_claims: Vec<String>,
    /// The algorithms that are allowed. All of them have a public key.
    pub algorithms: Vec<Algorithm>,
}

/// The algorithms that a text names, with commas between.
///
/// # Errors
/// In words: a name is none of an algorithm with a public key, or there is none.
pub fn algorithms(text: &str) -> Result<Vec<Algorithm>, String> {
    let names: Vec<_> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err("it names no algorithm".to_owned());
    }
    let known = |name: &str| {
        algorithm(name).ok_or_else(|| {
            format!(
                "\"{name}\" must be one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA; `none` and \
                 algorithms with a shared secret (HS256) are never taken"
            )
        })
    };
    names.into_iter().map(known).collect()
}

/// An algorithm that signs with a key which nobody else has.
pub(crate) fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "RS256" => Algorithm::RS256,
        "RS384" => Algorithm::RS384,
        "RS512" => Algorithm::RS512,
        "PS256" => Algorithm::PS256,
        "PS384" => Algorithm::PS384,
        "PS512" => Algorithm::PS512,
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "EdDSA" => Algorithm::EdDSA,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_algorithms_with_a_public_key_are_taken() {
        assert_eq!(algorithms("RS256, ES256"), Ok(vec![Algorithm::RS256, Algorithm::ES256]));
        for wrong in ["none", "HS256", "RS256,HS512", "rs256", "ES512"] {
            assert!(algorithms(wrong).unwrap_err().contains("must be one of"), "{wrong}");
        }
        assert!(algorithms(" , ").is_err());
    }
}
