//! What the claims of a token say, once its signature was found right.

use serde_json::{Map, Value};

use crate::grant::Grant;
use crate::limits::{CLOCK_SKEW_S, SCOPES_MAX, USER_BYTES_MAX};
use crate::refusal::Refusal;
use crate::rules::Rules;
use crate::scope::Scope;

/// Claims by their names.
pub(crate) type Claims = Map<String, Value>;

/// Where a requesting party token has its scopes, as Keycloak makes it.
const REQUESTING_PARTY: &str = "authorization.permissions.scopes";

/// The claims that name the user where no other does.
const USER_CLAIMS: [&str; 2] = ["sub", "client_id"];

/// Judges claims at this time, in seconds since 1970.
///
/// # Errors
/// Why they give nothing.
pub(crate) fn grant(claims: &Claims, rules: &Rules, now_s: u64) -> Result<Grant, Refusal> {
    let expires_s = claims.get("exp").and_then(seconds).ok_or(Refusal::NoExpiry)?;
    if expires_s <= now_s {
        return Err(Refusal::Expired);
    }
    if let Some(begins) = claims.get("nbf") {
        let begins_s = seconds(begins).ok_or(Refusal::NotYet)?;
        if begins_s > now_s.saturating_add(CLOCK_SKEW_S) {
            return Err(Refusal::NotYet);
        }
    }
    if let Some(issuer) = &rules.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer.as_str())
    {
        return Err(Refusal::Issuer);
    }
    if rules.checks_audience && !is_for(claims.get("aud"), &rules.resource_server_id) {
        return Err(Refusal::Audience);
    }
    let user = user(claims, rules)?;
    Ok(Grant::new(user, expires_s, scopes(claims, rules)?))
}

/// A time in whole seconds since 1970. It may have a fraction, which is cut off.
fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64();
    let fraction = || value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds));
    whole.or_else(|| fraction().map(|seconds| seconds as u64))
}

fn is_for(audience: Option<&Value>, id: &str) -> bool {
    match audience {
        Some(Value::String(one)) => one == id,
        Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(id)),
        Some(_) | None => false,
    }
}

/// The first claim that is a text names the user.
fn user(claims: &Claims, rules: &Rules) -> Result<String, Refusal> {
    let names = rules.username_claims.iter().map(String::as_str).chain(USER_CLAIMS);
    let mut found = names.filter_map(|name| claims.get(name)?.as_str());
    let user = found.next().ok_or(Refusal::NoUser)?;
    let is_odd =
        user.is_empty() || user.len() > USER_BYTES_MAX || user.chars().any(char::is_control);
    if is_odd { Err(Refusal::UserName) } else { Ok(user.to_owned()) }
}

fn scopes(claims: &Claims, rules: &Rules) -> Result<Vec<Scope>, Refusal> {
    let mut texts = Vec::new();
    add(claims.get("scope"), rules, &mut texts);
    let more = rules.scope_claims.iter().map(String::as_str).chain([REQUESTING_PARTY]);
    for path in more {
        for value in at(claims, path) {
            add(Some(value), rules, &mut texts);
        }
    }
    let of_ours = texts.iter().filter_map(|text| text.strip_prefix(&rules.scope_prefix));
    let mut of_ours: Vec<_> = of_ours.collect();
    of_ours.sort_unstable();
    of_ours.dedup();
    if of_ours.len() > SCOPES_MAX {
        return Err(Refusal::TooManyScopes);
    }
    Ok(of_ours.into_iter().filter_map(Scope::read).collect())
}

/// The scopes of a value: a text with spaces, a list, or an object with those of this node under its name, which have no
/// prefix.
fn add(value: Option<&Value>, rules: &Rules, texts: &mut Vec<String>) {
    match value {
        Some(Value::String(text)) => texts.extend(text.split_whitespace().map(str::to_owned)),
        Some(Value::Array(list)) => {
            texts.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        Some(Value::Object(fields)) => {
            let prefixed = |text: &str| format!("{}{text}", rules.scope_prefix);
            match fields.get(&rules.resource_server_id) {
                Some(Value::String(text)) => texts.extend(text.split_whitespace().map(prefixed)),
                Some(Value::Array(list)) => {
                    texts.extend(list.iter().filter_map(Value::as_str).map(prefixed));
                }
                Some(_) | None => {}
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => {}
    }
}

/// What stands at a path: at a claim of this name, or else one object deeper for each dot. A list on the way stands for
/// each of its objects.
fn at<'a>(claims: &'a Claims, path: &str) -> Vec<&'a Value> {
    if let Some(whole) = claims.get(path) {
        return vec![whole];
    }
    let mut names = path.split('.');
    let mut found: Vec<&Value> =
        names.next().and_then(|name| claims.get(name)).into_iter().collect();
    for name in names {
        let objects = found.into_iter().flat_map(|value| match value {
            Value::Array(list) => list.as_slice(),
            other => std::slice::from_ref(other),
        });
        found = objects.filter_map(|object| object.get(name)).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::{NOW_S, rules};
    use crate::scope::Right;

    fn judged(claims: Value, rules: &Rules) -> Result<Grant, Refusal> {
        let Value::Object(claims) = claims else { panic!("claims are an object") };
        grant(&claims, rules, NOW_S)
    }

    /// A token of `ann` for this node, with `more` in its claims or in their place.
    fn with(more: Value) -> Result<Grant, Refusal> {
        with_rules(more, &rules())
    }

    fn with_rules(more: Value, rules: &Rules) -> Result<Grant, Refusal> {
        let mut claims = json!({ "sub": "ann", "aud": "rabbitmq", "exp": NOW_S + 60 });
        let (Value::Object(fields), Value::Object(more)) = (&mut claims, more) else {
            panic!("claims are an object");
        };
        fields.extend(more);
        fields.retain(|_, value| !value.is_null());
        judged(claims, rules)
    }

    #[test]
    fn a_token_is_good_until_its_expiry_and_must_have_one() {
        assert_eq!(with(json!({})).map(|grant| grant.expires_s), Ok(NOW_S + 60));
        assert_eq!(with(json!({ "exp": NOW_S })), Err(Refusal::Expired));
        assert_eq!(with(json!({ "exp": NOW_S as f64 + 0.5 })), Err(Refusal::Expired));
        assert!(with(json!({ "exp": NOW_S as f64 + 1.5 })).is_ok());
        for wrong in [json!(null), json!("soon"), json!(-1), json!(1e300), json!([NOW_S + 60])] {
            assert_eq!(with(json!({ "exp": wrong })), Err(Refusal::NoExpiry), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_good_from_its_beginning_on_with_a_little_grace_for_clocks() {
        assert!(with(json!({ "nbf": NOW_S + CLOCK_SKEW_S })).is_ok());
        assert_eq!(with(json!({ "nbf": NOW_S + CLOCK_SKEW_S + 1 })), Err(Refusal::NotYet));
        assert_eq!(with(json!({ "nbf": "now" })), Err(Refusal::NotYet));
    }

    #[test]
    fn issuer_and_audience_are_held_against_the_rules() {
        for wrong in [json!(null), json!("other"), json!(["other"]), json!([]), json!(7)] {
            assert_eq!(with(json!({ "aud": wrong })), Err(Refusal::Audience), "{wrong}");
        }
        assert!(with(json!({ "aud": ["account", "rabbitmq"] })).is_ok());
        let unchecked = Rules { checks_audience: false, ..rules() };
        assert!(with_rules(json!({ "aud": "other" }), &unchecked).is_ok());
        let rules = Rules { issuer: Some("https://id.example".to_owned()), ..rules() };
        assert!(with_rules(json!({ "iss": "https://id.example" }), &rules).is_ok());
        for wrong in [json!(null), json!("https://id.example/"), json!(["https://id.example"])] {
            assert_eq!(
                with_rules(json!({ "iss": wrong }), &rules),
                Err(Refusal::Issuer),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_first_claim_that_may_name_the_user_does() {
        let claims = vec!["user_name".to_owned(), "email".to_owned()];
        let rules = Rules { username_claims: claims, ..rules() };
        let user = |more| with_rules(more, &rules).map(|grant| grant.user);
        assert_eq!(user(json!({})), Ok("ann".to_owned()));
        assert_eq!(user(json!({ "email": "a@b", "user_name": "bob" })), Ok("bob".to_owned()));
        assert_eq!(user(json!({ "email": "a@b", "user_name": 7 })), Ok("a@b".to_owned()));
        assert_eq!(user(json!({ "sub": null, "client_id": "app" })), Ok("app".to_owned()));
        assert_eq!(user(json!({ "sub": null })), Err(Refusal::NoUser));
        for odd in ["", "ann\0", "a\nb", &"x".repeat(256)] {
            assert_eq!(user(json!({ "email": odd })), Err(Refusal::UserName), "{odd:?}");
        }
    }

    #[test]
    fn scopes_are_a_text_or_a_list_and_those_of_others_are_left_out() {
        for scope in [
            json!("openid rabbitmq.read:*/jobs other.write:*/*  rabbitmq.tag:management"),
            json!(["openid", "rabbitmq.read:*/jobs", "write:*/*", "rabbitmq.tag:management", 7]),
        ] {
            let grant = with(json!({ "scope": scope })).unwrap();
            assert!(grant.allows(Right::Read, "/", "jobs") && grant.enters("/"));
            assert!(
                !grant.allows(Right::Write, "/", "jobs") && !grant.allows(Right::Read, "/", "x")
            );
            assert_eq!(grant.tags(), ["management"]);
            assert!(grant.has_tag("management") && !grant.has_tag("administrator"));
        }
        for none in [json!(null), json!(7), json!({ "other": ["read:*/*"] })] {
            let grant = with(json!({ "scope": none })).unwrap();
            assert!(!grant.enters("/") && grant.tags().is_empty());
        }
    }

    #[test]
    fn the_prefix_may_be_another_or_none() {
        let rules = |prefix: &str| Rules { scope_prefix: prefix.to_owned(), ..rules() };
        let allows = |prefix, scope: &str| {
            let grant = with_rules(json!({ "scope": scope }), &rules(prefix)).unwrap();
            grant.allows(Right::Read, "/", "jobs")
        };
        assert!(allows("api://", "api://read:*/*") && !allows("api://", "rabbitmq.read:*/*"));
        assert!(allows("", "read:*/*") && !allows("", "rabbitmq.read:*/*"));
    }

    #[test]
    fn scopes_stand_at_other_claims_too_where_the_rules_say_so() {
        let paths = ["roles", "resource_access.rabbitmq.roles", "https://x.example/y", "complex"];
        let rules = Rules { scope_claims: paths.map(str::to_owned).to_vec(), ..rules() };
        let jobs = "rabbitmq.read:*/jobs";
        for claims in [
            json!({ "roles": jobs }),
            json!({ "roles": [jobs] }),
            json!({ "resource_access": { "rabbitmq": { "roles": ["x", jobs] } } }),
            json!({ "https://x.example/y": [jobs] }),
            json!({ "complex": { "rabbitmq": ["read:*/jobs"], "other": ["write:*/*"] } }),
            json!({ "complex": { "rabbitmq": "read:*/jobs tag:x" } }),
            json!({ "authorization": { "permissions": [{ "scopes": ["x"] }, { "scopes": [jobs] }] } }),
        ] {
            let grant = with_rules(claims.clone(), &rules).unwrap();
            assert!(grant.allows(Right::Read, "/", "jobs"), "{claims}");
            assert!(!grant.allows(Right::Write, "/", "jobs"), "{claims}");
        }
        let grant = with(json!({ "roles": [jobs] })).unwrap();
        assert!(!grant.enters("/"), "the rules name no such claim");
    }

    #[test]
    fn scopes_are_bounded_and_repeated_ones_count_once() {
        let scopes = |count: usize| (0..count).map(|at| format!("rabbitmq.read:*/{at}"));
        let list = |count| json!({ "scope": scopes(count).collect::<Vec<_>>() });
        assert!(with(list(SCOPES_MAX)).is_ok());
        assert_eq!(with(list(SCOPES_MAX + 1)), Err(Refusal::TooManyScopes));
        assert!(with(json!({ "scope": "rabbitmq.read:*/x ".repeat(SCOPES_MAX + 1) })).is_ok());
        assert!(with(json!({ "scope": "other ".repeat(SCOPES_MAX + 1) })).is_ok());
    }
}
