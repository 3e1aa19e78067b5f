//! A Getui REST v2: access tokens with their limit, single pushes and batches, and ids that it has seen.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::rest::{Asked, Counts, Faults, Provider, Reply};

/// Access tokens in a minute.
const AUTHS_PER_MINUTE: usize = 100;

/// One app.
#[derive(Debug, Default)]
pub struct Getui {
    pub app_id: String,
    pub app_key: String,
    pub master_secret: String,
    /// Cids that it refuses.
    pub refused: BTreeSet<String>,
    /// A batch with a refused cid leaves it out, instead of being refused.
    pub leaves_out: bool,
    /// The app's cids are those of another app.
    pub is_wrong_environment: bool,
    /// Another domain serves the app.
    pub is_wrong_domain: bool,
    /// Answers to the next pushes.
    pub faults: Faults,
    /// Answers to the next requests for an access token.
    pub auth_faults: Faults,
    live: BTreeSet<String>,
    auth_times: VecDeque<Instant>,
    pub auths: u64,
    pub sends: u64,
    pub sent: Counts,
    seen: BTreeSet<String>,
    /// Messages that it dropped because it had seen their ids.
    pub repeated: u64,
    /// The largest batch.
    pub batch_max: usize,
}

impl Getui {
    pub fn new() -> Self {
        Self {
            app_id: "appid123".to_owned(),
            app_key: "canary-app-key".to_owned(),
            master_secret: "canary-master-secret".to_owned(),
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
        let now = Instant::now();
        self.auth_times.retain(|at| now - *at < Duration::from_secs(60));
        self.auth_times.push_back(now);
        if self.auth_times.len() > AUTHS_PER_MINUTE {
            return coded(401, 10003, "too many auth requests");
        }
        let body = asked.json();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let timestamp = text("timestamp");
        let signed = format!("{}{timestamp}{}", self.app_key, self.master_secret);
        let sign: String =
            Sha256::digest(signed.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        if timestamp.len() != 13 || text("appkey") != self.app_key || text("sign") != sign {
            return coded(400, 20001, "sign is invalid");
        }
        self.auths += 1;
        let token = format!("canary-access-{}", self.auths);
        self.live.insert(token.clone());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expire_time = (now.as_millis() + 86_400_000).to_string();
        let data = json!({ "token": token, "expire_time": expire_time });
        Reply::json(200, &json!({ "code": 0, "msg": "success", "data": data }))
    }

    fn push(&mut self, asked: &Asked, is_batch: bool) -> Reply {
        self.sends += 1;
        if let Some(fault) = self.faults.pop_front() {
            return fault;
        }
        if !self.live.contains(asked.header("token")) {
            return coded(401, 10001, "token is invalid");
        }
        let body = asked.json();
        if body.is_null() {
            return coded(400, 1, "not JSON");
        }
        let messages: Vec<Value> = match is_batch {
            true => body["msg_list"].as_array().cloned().unwrap_or_default(),
            false => vec![body],
        };
        if messages.is_empty() || messages.len() > 200 {
            return coded(400, 20001, "msg_list has 1 to 200 messages");
        }
        self.batch_max = self.batch_max.max(messages.len());
        let mut data = Map::new();
        let mut accepted = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let id = message["request_id"].as_str().unwrap_or_default().to_owned();
            let cid = message["audience"]["cid"][0].as_str().unwrap_or_default().to_owned();
            if !(10..=32).contains(&id.len()) || !message["push_message"].is_object() {
                return coded(400, 20001, "request_id or push_message is invalid");
            }
            if self.is_wrong_environment || self.refused.contains(&cid) {
                if is_batch && self.leaves_out {
                    continue;
                }
                return coded(400, 20001, "target user is invalid");
            }
            data.insert(format!("RASS_{index}"), json!({ &cid: "successed_online" }));
            accepted.push((id, cid));
        }
        for (id, cid) in accepted {
            if self.seen.insert(id) {
                *self.sent.entry(cid).or_default() += 1;
            } else {
                self.repeated += 1;
            }
        }
        Reply::json(200, &json!({ "code": 0, "msg": "success", "data": data }))
    }
}

impl Provider for Getui {
    fn answer(&mut self, asked: &Asked) -> Reply {
        let path = asked.path.strip_prefix(&format!("/v2/{}", self.app_id));
        if self.is_wrong_domain {
            return coded(200, 301, "domain error");
        }
        match path {
            Some("/auth") => self.auth(asked),
            Some("/push/single/cid") => self.push(asked, false),
            Some("/push/single/batch/cid") => self.push(asked, true),
            Some(_) | None => Reply::text(404, "not found"),
        }
    }
}

/// A refusal.
pub fn coded(status: u16, code: i64, msg: &str) -> Reply {
    Reply::json(status, &json!({ "code": code, "msg": msg }))
}
