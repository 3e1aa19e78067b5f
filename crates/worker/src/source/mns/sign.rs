//! The signature of a call: HMAC-SHA1 over the method, a few headers and the resource.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// What of a call is signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedHeaders<'a> {
    /// `Content-MD5`; empty: it is not sent.
    pub content_md5: &'a str,
    /// `Content-Type`; empty: it is not sent.
    pub content_type: &'a str,
    /// `Date`.
    pub date: &'a str,
    /// `x-mns-…`, in lower case.
    pub mns: &'a [(&'a str, &'a str)],
}

/// Signs with one access key.
#[derive(Clone)]
pub struct Signer {
    access_key_id: String,
    secret: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Signer")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

impl Signer {
    pub fn new(access_key_id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { access_key_id: access_key_id.into(), secret: secret.into() }
    }

    /// The header `Authorization`. `resource` is the path with the query.
    pub fn authorization(
        &self,
        method: &str,
        headers: &SignedHeaders<'_>,
        resource: &str,
    ) -> String {
        let text = string_to_sign(method, headers, resource);
        let mut mac = Hmac::<Sha1>::new_from_slice(self.secret.as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(text.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        format!("MNS {}:{signature}", self.access_key_id)
    }
}

fn string_to_sign(method: &str, headers: &SignedHeaders<'_>, resource: &str) -> String {
    let mut mns = headers.mns.to_vec();
    mns.sort_unstable();
    let mns: String = mns.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let SignedHeaders { content_md5, content_type, date, .. } = headers;
    format!("{method}\n{content_md5}\n{content_type}\n{date}\n{mns}{resource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_string_to_sign_has_its_lines_in_their_order() {
        let mns = [("x-mns-version", "2015-06-06"), ("x-mns-a", "1")];
        let headers =
            SignedHeaders { content_md5: "md5", content_type: "text/xml", date: "now", mns: &mns };
        assert_eq!(
            string_to_sign("GET", &headers, "/queues/q/messages?numOfMessages=16"),
            "GET\nmd5\ntext/xml\nnow\nx-mns-a:1\nx-mns-version:2015-06-06\n/queues/q/messages?numOfMessages=16"
        );
    }

    #[test]
    fn a_signature_is_hmac_sha1_in_base64() {
        // Made with `openssl dgst -sha1 -hmac secret -binary | base64` over the same bytes.
        let headers = SignedHeaders { date: "now", ..SignedHeaders::default() };
        let authorization = Signer::new("id", "secret").authorization("GET", &headers, "/queues/q");
        assert_eq!(authorization, "MNS id:v34rsZ0vdT2nfZpwvM/nzyf7/1Q=");
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert!(!format!("{:?}", Signer::new("id", "canary")).contains("canary"));
    }
}
