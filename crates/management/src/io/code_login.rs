//! Browsers that log in at an identity server: they are sent there, and come back with a code. What the node has to know of
//! an attempt is in a cookie of the browser, so it need not come back to the same node.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::response::Response;
use broker::io::inside;
use http::{HeaderMap, HeaderValue, Method, header};
use oauth::Attempt;
use serde_json::json;

use super::api::Api;
use super::browser::{cookies, draw, login_body, suffix};
use super::response::unchallenged;
use crate::asked::Body;
use crate::reply::{Problem, Reply};

/// How long somebody may take to log in there, in seconds.
const ATTEMPT_S: u32 = 600;

/// As that of a session: ports of one host share their cookies.
fn cookie_name(api: &Api) -> String {
    format!("millrace_login_{}", api.port())
}

/// Says whether there is such a login, or begins one.
pub(super) async fn answer(api: &Api, is_tls: bool, request: Request) -> Result<Response, Problem> {
    match *request.method() {
        Method::GET | Method::HEAD => {
            let host = inside::code_login(&api.0.broker).map(|login| login.host().to_owned());
            Ok(unchallenged(Reply::of(json!({ "host": host }))))
        }
        Method::POST => begin(api, is_tls, request).await,
        _ => Err(Problem::Method),
    }
}

async fn begin(api: &Api, is_tls: bool, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = login_body(&parts.headers, body).await?;
    let login = inside::code_login(&api.0.broker).ok_or(Problem::NotFound)?;
    let attempt = Attempt::of(&draw()?);
    let place = login.place(&attempt, body.needed("redirect_uri")?);
    let mut response = unchallenged(Reply::of(json!({ "place": place })));
    set_cookie(api, &mut response, &attempt.text(), ATTEMPT_S, is_tls);
    Ok(response)
}

/// The token of a browser that has come back. `body`: its code, its state, and where it came back to.
pub(super) async fn token(
    api: &Api,
    peer: SocketAddr,
    headers: &HeaderMap,
    body: &Body,
) -> Result<String, Problem> {
    let (code, state) = (body.needed("code")?, body.needed("state")?);
    let redirect = body.needed("redirect_uri")?;
    let name = cookie_name(api);
    let mut attempts = cookies(headers, &name).filter_map(Attempt::read);
    // Another browser began it, or somebody else has put the code there.
    let attempt = attempts.find(|attempt| attempt.is_of(state)).ok_or(Problem::Unproven)?;
    let token = inside::redeem(&api.0.broker, peer, &attempt, code, redirect).await;
    token.ok_or(Problem::NotKnown)
}

/// A code is good for once.
pub(super) fn forget(api: &Api, response: &mut Response, is_tls: bool) {
    set_cookie(api, response, "", 0, is_tls);
}

fn set_cookie(api: &Api, response: &mut Response, text: &str, seconds: u32, is_tls: bool) {
    let (suffix, secure) = suffix(is_tls);
    let name = cookie_name(api);
    let cookie = format!(
        "{name}{suffix}={text}; Path=/api/millrace/session; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
