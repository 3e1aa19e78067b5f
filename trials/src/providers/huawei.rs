//! A Huawei Push Kit: its OAuth endpoint, v1, v2 and v3.

use std::collections::{BTreeMap, BTreeSet};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value, json};

use super::rest::{Asked, Counts, Faults, Provider, Reply};

/// A key pair for service accounts of tests. It opens nothing.
pub const PRIVATE_KEY: &str = include_str!("huawei_test_key.pem");
const PUBLIC_KEY: &str = include_str!("huawei_test_public.pem");

/// One app, and the project that it belongs to.
#[derive(Debug, Default)]
pub struct Huawei {
    pub app_id: String,
    pub client_secret: String,
    pub project_id: String,
    pub sub_account: String,
    pub key_id: String,
    /// Tokens that it refuses, and why: v3 tells the reason.
    pub refused: BTreeMap<String, &'static str>,
    /// The app's tokens are those of another app.
    pub is_wrong_environment: bool,
    /// Answers to the next sends.
    pub faults: Faults,
    /// Answers to the next requests for an access token.
    pub auth_faults: Faults,
    /// Access tokens that it gave out and takes.
    live: BTreeSet<String>,
    /// Access tokens that it gave out.
    pub auths: u64,
    pub sends: u64,
    pub sent: Counts,
    /// The largest request, in tokens.
    pub tokens_max: usize,
    pub push_types: BTreeSet<String>,
}

impl Huawei {
    pub fn new() -> Self {
        Self {
            app_id: "100001".to_owned(),
            client_secret: "canary-client-secret".to_owned(),
            project_id: "388421841222".to_owned(),
            sub_account: "canary-sub-account".to_owned(),
            key_id: "key-1".to_owned(),
            ..Self::default()
        }
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
        let is = |name: &str, value: &str| form.get(name).is_some_and(|text| text == value);
        if !is("grant_type", "client_credentials")
            || !is("client_id", &self.app_id)
            || !is("client_secret", &self.client_secret)
        {
            let body = json!({ "error": 1101, "sub_error": 20001, "error_description": "invalid request" });
            return Reply::json(400, &body);
        }
        self.auths += 1;
        let token = format!("canary-access-{}", self.auths);
        self.live.insert(token.clone());
        let body = json!({ "access_token": token, "expires_in": 3600, "token_type": "Bearer" });
        Reply::json(200, &body)
    }

    fn is_authorized(&self, asked: &Asked, is_v3: bool) -> bool {
        let Some(token) = asked.header("authorization").strip_prefix("Bearer ") else {
            return false;
        };
        if !is_v3 {
            return self.live.contains(token);
        }
        let Ok(key) = DecodingKey::from_rsa_pem(PUBLIC_KEY.as_bytes()) else { return false };
        let mut rules = Validation::new(Algorithm::PS256);
        rules.validate_aud = false;
        let read = jsonwebtoken::decode::<Map<String, Value>>(token, &key, &rules);
        read.is_ok_and(|read| {
            let claim = |name: &str| read.claims.get(name).and_then(Value::as_u64).unwrap_or(0);
            let life = claim("exp").saturating_sub(claim("iat"));
            read.header.kid.as_deref() == Some(&self.key_id)
                && read.claims.get("iss").and_then(Value::as_str) == Some(&self.sub_account)
                && read.claims.contains_key("aud")
                && (1..=86_400).contains(&life)
        })
    }

    fn send(&mut self, asked: &Asked, is_v3: bool) -> Reply {
        self.sends += 1;
        if let Some(fault) = self.faults.pop_front() {
            return fault;
        }
        if !self.is_authorized(asked, is_v3) {
            return coded(401, "80200003", "OAuth authentication expired.");
        }
        let body = asked.json();
        let tokens = if is_v3 { &body["target"]["token"] } else { &body["message"]["token"] };
        let tokens: Vec<String> = tokens
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|token| token.as_str().map(str::to_owned))
            .collect();
        if !(1..=1000).contains(&tokens.len()) {
            return coded(400, "80300010", "token count should within 1 and 1000");
        }
        if is_v3 {
            self.push_types.insert(asked.header("push-type").to_owned());
        }
        self.tokens_max = self.tokens_max.max(tokens.len());
        self.deliver(tokens, is_v3)
    }

    fn deliver(&mut self, tokens: Vec<String>, is_v3: bool) -> Reply {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut success = 0_u64;
        for token in &tokens {
            let reason = match self.refused.get(token) {
                Some(reason) => Some(*reason),
                None => self.is_wrong_environment.then_some("noRight"),
            };
            match reason {
                Some(reason) => reasons.entry(reason).or_default().push(token),
                None => {
                    success += 1;
                    *self.sent.entry(token.clone()).or_default() += 1;
                }
            }
        }
        let failure: usize = reasons.values().map(Vec::len).sum();
        let msg = if is_v3 {
            json!({ "success": success, "failure": failure, "illegalTokens": reasons })
        } else {
            let illegal: Vec<&str> = reasons.into_values().flatten().collect();
            json!({ "success": success, "failure": failure, "illegal_tokens": illegal })
        };
        match (success, failure) {
            (_, 0) => coded(200, "80000000", "Success"),
            (0, _) if is_v3 => coded(400, "80300007", &msg.to_string()),
            (0, _) => coded(200, "80300007", "All the tokens are invalid"),
            (_, _) => coded(200, "80100000", &msg.to_string()),
        }
    }
}

impl Provider for Huawei {
    fn answer(&mut self, asked: &Asked) -> Reply {
        let v1 = format!("/v1/{}/messages:send", self.app_id);
        let v2 = format!("/v2/{}/messages:send", self.project_id);
        let v3 = format!("/v3/{}/messages:send", self.project_id);
        match asked.path.as_str() {
            "/oauth2/v3/token" => self.auth(asked),
            path if path == v1 || path == v2 => self.send(asked, false),
            path if path == v3 => self.send(asked, true),
            _ => Reply::text(404, "not found"),
        }
    }
}

/// An answer with a business code.
pub fn coded(status: u16, code: &str, msg: &str) -> Reply {
    let body = json!({ "code": code, "msg": msg, "requestId": "157440955549500001002006" });
    Reply::json(status, &body)
}
