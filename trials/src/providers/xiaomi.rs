//! A Xiaomi MiPush: regid messages of v2 and v3, and a message for each regid.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rest::{Asked, Counts, Faults, Provider, Reply};

/// One app.
#[derive(Debug, Default)]
pub struct Xiaomi {
    pub app_secret: String,
    pub package: String,
    /// Regids that it refuses.
    pub refused: BTreeSet<String>,
    /// The app's regids are those of another app.
    pub is_wrong_environment: bool,
    /// Messages that it takes today; none: any number.
    pub quota: Option<u64>,
    /// Answers to the next requests.
    pub faults: Faults,
    /// Regids that the next fetch of invalid ones gives, once.
    pub invalid: Vec<String>,
    pub fetches: u64,
    pub sends: u64,
    pub sent: Counts,
    pub titles: BTreeSet<String>,
    /// The largest request, in tokens.
    pub tokens_max: usize,
}

impl Xiaomi {
    pub fn new() -> Self {
        Self {
            app_secret: "canary-app-secret".to_owned(),
            package: "com.example.app".to_owned(),
            ..Self::default()
        }
    }

    /// Which regids a request names, with the title for each.
    fn targets(asked: &Asked) -> Result<Vec<(String, String, String)>, Reply> {
        let form = asked.form();
        if asked.path == "/v2/multi_messages/regids" {
            let list: Value = form
                .get("messages")
                .and_then(|text| serde_json::from_str(text).ok())
                .ok_or_else(|| coded(10017, "messages is no JSON"))?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let one = |item: &Value| {
                let message = &item["message"];
                let package = text(&message["restricted_package_name"]);
                (text(&item["target"]), text(&message["title"]), package)
            };
            return Ok(list.as_array().into_iter().flatten().map(one).collect());
        }
        let field = |name: &str| form.get(name).cloned().unwrap_or_default();
        let regids = field("registration_id");
        let regids = regids.split(',').filter(|regid| !regid.is_empty());
        let (title, package) = (field("title"), field("restricted_package_name"));
        Ok(regids.map(|regid| (regid.to_owned(), title.clone(), package.clone())).collect())
    }

    fn send(&mut self, asked: &Asked) -> Reply {
        self.sends += 1;
        if let Some(fault) = self.faults.pop_front() {
            return fault;
        }
        if asked.header("authorization") != format!("key={}", self.app_secret) {
            return coded(21301, "auth failed");
        }
        let targets = match Self::targets(asked) {
            Ok(targets) => targets,
            Err(reply) => return reply,
        };
        if targets.is_empty() || targets.len() > 1000 {
            return coded(10017, "between 1 and 1000 regids");
        }
        if targets.iter().any(|(_, _, package)| *package != self.package) {
            return coded(22022, "package does not belong to the app");
        }
        if targets.iter().any(|(_, title, _)| title.is_empty() || title.chars().count() >= 50) {
            return coded(10016, "title has 1 to 49 characters");
        }
        self.tokens_max = self.tokens_max.max(targets.len());
        let is_bad = |regid: &String| self.is_wrong_environment || self.refused.contains(regid);
        let (bad, good): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|(regid, _, _)| is_bad(regid));
        if good.is_empty() {
            return coded(20301, "No valid targets!");
        }
        if let Some(left) = self.quota {
            let count = good.len() as u64;
            if left < count {
                return coded(10034, "daily quota is used up");
            }
            self.quota = Some(left - count);
        }
        for (regid, title, _) in good {
            *self.sent.entry(regid).or_default() += 1;
            self.titles.insert(title);
        }
        let mut data = json!({ "id": "scm52b53571463000000vH" });
        if !bad.is_empty() {
            let bad: Vec<String> = bad.into_iter().map(|(regid, _, _)| regid).collect();
            data["bad_regids"] = json!(bad.join(","));
        }
        let body = json!({ "result": "ok", "code": 0, "description": "成功", "data": data });
        Reply::json(200, &body)
    }
}

impl Provider for Xiaomi {
    fn answer(&mut self, asked: &Asked) -> Reply {
        match asked.path.as_str() {
            "/v2/message/regid" | "/v3/message/regid" | "/v2/multi_messages/regids" => {
                self.send(asked)
            }
            "/v1/feedback/fetch_invalid_regids" => {
                self.fetches += 1;
                let list = std::mem::take(&mut self.invalid);
                let body = json!({ "result": "ok", "code": 0, "data": { "list": list } });
                Reply::json(200, &body)
            }
            _ => Reply::text(404, "not found"),
        }
    }
}

/// A refusal.
pub fn coded(code: i64, reason: &str) -> Reply {
    let body = json!({ "result": "error", "code": code, "reason": reason, "trace_id": "Xcm1" });
    Reply::json(200, &body)
}
