//! The rules that a push must keep.

use http::Request;

use super::authentication::{Known, Refusal};
use super::{Options, Shared};

/// Device tokens have so many hexadecimal digits.
const DEVICE_TOKEN_DIGITS: usize = 64;
const PRIORITIES: [&str; 3] = ["10", "5", "1"];
const PUSH_TYPES: [&str; 10] = [
    "alert",
    "background",
    "location",
    "voip",
    "complication",
    "fileprovider",
    "mdm",
    "liveactivity",
    "pushtotalk",
    "widgets",
];

/// The device token of a request.
pub(super) fn device_token<B>(request: &Request<B>) -> Option<&str> {
    request.uri().path().strip_prefix("/3/device/").filter(|token| !token.is_empty())
}

/// Whether a request's head keeps the rules.
pub(super) fn head<B>(
    shared: &Shared,
    known: &mut Known,
    request: &Request<B>,
) -> Result<(), Refusal> {
    if request.method() != http::Method::POST {
        return Err((405, "MethodNotAllowed"));
    }
    let Some(token) = device_token(request) else {
        let is_bare = request.uri().path().starts_with("/3/device/");
        return Err(if is_bare { (400, "MissingDeviceToken") } else { (404, "BadPath") });
    };
    let Options { wants_certificate, .. } = shared.options;
    if !wants_certificate {
        known.check(shared, request.headers().get(http::header::AUTHORIZATION))?;
    }
    if token.len() != DEVICE_TOKEN_DIGITS || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err((400, "BadDeviceToken"));
    }
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if !wants_certificate && header("apns-topic").is_none() {
        return Err((400, "MissingTopic"));
    }
    if header("apns-push-type").is_some_and(|kind| !PUSH_TYPES.contains(&kind)) {
        return Err((400, "InvalidPushType"));
    }
    if header("apns-priority").is_some_and(|priority| !PRIORITIES.contains(&priority)) {
        return Err((400, "BadPriority"));
    }
    if header("apns-expiration").is_some_and(|time| time.parse::<u64>().is_err()) {
        return Err((400, "BadExpirationDate"));
    }
    if header("apns-collapse-id").is_some_and(|id| id.len() > 64) {
        return Err((400, "BadCollapseId"));
    }
    if header("apns-id").is_some_and(|id| id.len() != 36) {
        return Err((400, "BadMessageId"));
    }
    Ok(())
}

/// Whether a payload of so many bytes keeps the rules.
pub(super) fn payload(bytes: usize, is_voip: bool) -> Result<(), Refusal> {
    let most = if is_voip { 5120 } else { 4096 };
    match bytes {
        0 => Err((400, "PayloadEmpty")),
        bytes if bytes > most => Err((413, "PayloadTooLarge")),
        _ => Ok(()),
    }
}
