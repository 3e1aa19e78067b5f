//! A Firebase Cloud Messaging: its token endpoint and HTTP v1's `messages:send`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value, json};

use super::rest::{Asked, Counts, Faults, Provider, Reply};

/// A key pair for service accounts of tests. It opens nothing.
pub use super::huawei::PRIVATE_KEY;
const PUBLIC_KEY: &str = include_str!("huawei_test_public.pem");
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
/// Largest payload, in bytes.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// One project.
#[derive(Debug, Default)]
pub struct Fcm {
    pub project_id: String,
    pub client_email: String,
    pub key_id: String,
    /// The life of access tokens, in seconds.
    pub life: u64,
    /// Device tokens that it refuses: the status and FCM's code.
    pub refused: BTreeMap<String, (u16, &'static str)>,
    /// Answers to the next sends.
    pub faults: Faults,
    /// Answers to the next requests for an access token.
    pub auth_faults: Faults,
    live: BTreeSet<String>,
    /// Access tokens that it gave out.
    pub auths: u64,
    /// Messages that were only checked.
    pub validated: u64,
    pub sent: Counts,
    /// The messages, as they came.
    pub bodies: Vec<String>,
}

impl Fcm {
    pub fn new() -> Self {
        Self {
            project_id: "example-project".to_owned(),
            client_email: "sender@example-project.iam.gserviceaccount.com".to_owned(),
            key_id: "canary-key-id".to_owned(),
            life: 3599,
            ..Self::default()
        }
    }

    /// The key file of its service account.
    pub fn service_account(&self, url: &str) -> String {
        json!({
            "type": "service_account",
            "project_id": self.project_id,
            "private_key_id": self.key_id,
            "private_key": PRIVATE_KEY,
            "client_email": self.client_email,
            "token_uri": format!("{url}/token"),
        })
        .to_string()
    }

    /// From now on no access token that was given out is taken.
    pub fn expire_access(&mut self) {
        self.live.clear();
    }

    fn auth(&mut self, asked: &Asked) -> Reply {
        if let Some(fault) = self.auth_faults.pop_front() {
            return fault;
        }
        let form = asked.form();
        let assertion = form.get("assertion").map_or("", String::as_str);
        let is_granted = form.get("grant_type").is_some_and(|grant| grant == GRANT_TYPE);
        if !is_granted || !self.is_signed(assertion) {
            return Reply::json(400, &json!({ "error": "invalid_grant" }));
        }
        self.auths += 1;
        let token = format!("canary-access-{}", self.auths);
        self.live.insert(token.clone());
        let body =
            json!({ "access_token": token, "expires_in": self.life, "token_type": "Bearer" });
        Reply::json(200, &body)
    }

    fn is_signed(&self, assertion: &str) -> bool {
        let Ok(key) = DecodingKey::from_rsa_pem(PUBLIC_KEY.as_bytes()) else { return false };
        let mut rules = Validation::new(Algorithm::RS256);
        rules.validate_aud = false;
        let read = jsonwebtoken::decode::<Map<String, Value>>(assertion, &key, &rules);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        read.is_ok_and(|read| {
            let text = |name: &str| read.claims.get(name).and_then(Value::as_str).unwrap_or("");
            let number = |name: &str| read.claims.get(name).and_then(Value::as_u64).unwrap_or(0);
            text("iss") == self.client_email
                && text("scope") == SCOPE
                && text("aud").ends_with("/token")
                && number("iat").abs_diff(now) < 300
                && number("exp") - number("iat") <= 3600
                && read.header.kid.as_deref() == Some(&self.key_id)
        })
    }

    fn send(&mut self, asked: &Asked) -> Reply {
        let bearer = asked.header("authorization").strip_prefix("Bearer ");
        if !bearer.is_some_and(|token| self.live.contains(token)) {
            return error(401, "UNAUTHENTICATED", &[]);
        }
        if let Some(fault) = self.faults.pop_front() {
            return fault;
        }
        let body = asked.json();
        let message = &body["message"];
        if !message.is_object() {
            return error(400, "INVALID_ARGUMENT", &[field("message")]);
        }
        let payload = message["data"].to_string().len() + message["notification"].to_string().len();
        if payload > PAYLOAD_BYTES_MAX {
            return error(
                400,
                "INVALID_ARGUMENT",
                &[code("INVALID_ARGUMENT"), field("message.data")],
            );
        }
        let token = message["token"].as_str().unwrap_or_default().to_owned();
        if let Some((status, word)) = self.refused.get(&token) {
            return error(*status, "REFUSED", &[code(word)]);
        }
        self.bodies.push(String::from_utf8_lossy(&asked.body).into_owned());
        if body["validate_only"] == true {
            self.validated += 1;
        } else {
            *self.sent.entry(token).or_default() += 1;
        }
        let name = format!("projects/{}/messages/{}", self.project_id, self.bodies.len());
        Reply::json(200, &json!({ "name": name }))
    }
}

impl Provider for Fcm {
    fn answer(&mut self, asked: &Asked) -> Reply {
        let send = format!("/v1/projects/{}/messages:send", self.project_id);
        match asked.path.as_str() {
            "/token" => self.auth(asked),
            path if path == send => self.send(asked),
            _ => error(404, "NOT_FOUND", &[]),
        }
    }
}

/// A detail with FCM's own code.
pub fn code(code: &str) -> Value {
    json!({ "@type": FCM_ERROR, "errorCode": code })
}

/// A detail that names a wrong field.
pub fn field(name: &str) -> Value {
    json!({ "@type": BAD_REQUEST, "fieldViolations": [{ "field": name, "description": "wrong" }] })
}

/// An error answer.
pub fn error(status: u16, word: &str, details: &[Value]) -> Reply {
    let error = json!({ "code": status, "message": "wrong", "status": word, "details": details });
    Reply::json(status, &json!({ "error": error }))
}
