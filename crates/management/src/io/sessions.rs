//! Browsers log in and out, and are known by their cookie. Which sessions there are is decided by `sessions`.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use broker::io::inside;
use http::{HeaderMap, HeaderValue, Method, header};
use machine::Catalog;
use serde_json::{Value, json};

use super::api::{Api, Caller, now_ms};
use super::browser::{cookies, draw, login_body, suffix};
use super::code_login;
use super::response::unchallenged;
use crate::access::{self, Named, Need, Who};
use crate::metrics::Metrics;
use crate::reply::{Problem, Reply};
use crate::routes::SESSION_OAUTH;
use crate::sessions::{Found, Id, Owner, Sessions};

/// The header that a request shows the session's second secret in.
const CSRF: &str = "x-millrace-csrf";

/// Opens the table, and counts what is in it afterwards.
fn with_sessions<T>(api: &Api, work: impl FnOnce(Duration, &mut Sessions) -> T) -> T {
    let sessions = &api.0.sessions;
    let mut sessions: MutexGuard<'_, Sessions> =
        sessions.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(api.0.started.elapsed(), &mut sessions);
    Metrics::set(&api.0.metrics.sessions, sessions.count() as u64);
    done
}

/// Forgets sessions that are over.
pub(super) fn sweep(api: &Api) {
    let catalog = api.0.cluster.catalog();
    with_sessions(api, |now, sessions| {
        sessions.sweep(now, |owner| owner.stands(&catalog, now_s()))
    });
}

/// Whether a session is still open.
pub(super) fn is_open(api: &Api, id: Id) -> bool {
    let catalog = api.0.cluster.catalog();
    let stands = |owner: &Owner| owner.stands(&catalog, now_s());
    with_sessions(api, |now, sessions| sessions.is_open(now, id, stands))
}

fn now_s() -> u64 {
    now_ms() / 1000
}

/// The name of the cookie. Ports of one host share their cookies, and several nodes may be on it.
fn cookie_name(api: &Api) -> String {
    format!("millrace_session_{}", api.port())
}

/// Whether a browser asks that has, or had, a session here.
pub(super) fn is_browser(api: &Api, headers: &HeaderMap) -> bool {
    headers.contains_key(header::COOKIE) && cookies(headers, &cookie_name(api)).next().is_some()
}

fn find(api: &Api, headers: &HeaderMap, peer: SocketAddr) -> Option<Found> {
    let name = cookie_name(api);
    let found = {
        let catalog = api.0.cluster.catalog();
        let stands = |owner: &Owner| owner.stands(&catalog, now_s());
        with_sessions(api, |now, sessions| {
            cookies(headers, &name).find_map(|token| sessions.find(now, token, stands))
        })?
    };
    // As for every login: some users may come from this machine only.
    let broker = &api.0.broker;
    let is_admitted = match found.owner.grant() {
        Some(grant) => inside::admits_token(broker, grant, peer),
        None => inside::admits(broker, &found.owner.user, peer),
    };
    is_admitted.then_some(found)
}

/// Who asks with a cookie. Whatever may change something has to show that it does not come from a page of somebody else.
pub(super) fn caller(
    api: &Api,
    method: &Method,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Caller, Problem> {
    let found = find(api, headers, peer).ok_or(Problem::NoSession)?;
    prove(api, method, headers, &found)?;
    let grant = found.owner.grant().cloned();
    Ok(Caller { user: found.owner.user, grant, session: Some(found.id), peer })
}

fn prove(api: &Api, method: &Method, headers: &HeaderMap, found: &Found) -> Result<(), Problem> {
    let is_safe = *method == Method::GET || *method == Method::HEAD;
    let is_shown = || headers.get(CSRF).is_some_and(|it| found.is_csrf(it.as_bytes()));
    if is_safe || is_shown() {
        return Ok(());
    }
    Metrics::count(&api.0.metrics.sessions_unproven);
    Err(Problem::Unproven)
}

/// Logs in, says who is logged in, or logs out.
pub(super) async fn answer(
    api: &Api,
    peer: SocketAddr,
    is_tls: bool,
    request: Request,
) -> Response {
    let is_tls = is_tls || is_forwarded_tls(request.headers());
    let method = request.method().clone();
    let is_at_server = request.uri().path().ends_with(SESSION_OAUTH);
    let answered = match method {
        _ if is_at_server => code_login::answer(api, is_tls, request).await,
        Method::POST => log_in(api, peer, is_tls, request).await,
        Method::GET | Method::HEAD => shown(api, peer, request.headers()),
        Method::DELETE => log_out(api, peer, is_tls, request.headers()),
        _ => Err(Problem::Method),
    };
    let mut response = answered.unwrap_or_else(|problem| {
        let wait_s = match problem {
            Problem::TooManyWrong { wait_s } => Some(wait_s),
            _ => None,
        };
        let mut response = unchallenged(problem.reply());
        if let Some(wait_s) = wait_s {
            response.headers_mut().insert(header::RETRY_AFTER, wait_s.into());
        }
        response
    });
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether a proxy says that the browser speaks TLS with it. A lie costs nobody but who tells it: its browser keeps the
/// cookie for TLS only.
fn is_forwarded_tls(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|it| it.as_bytes() == b"https")
}

fn set_cookie(api: &Api, response: &mut Response, token: &str, is_tls: bool) {
    let (suffix, secure) = suffix(is_tls);
    let name = cookie_name(api);
    let cookie = format!("{name}{suffix}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

async fn log_in(
    api: &Api,
    peer: SocketAddr,
    is_tls: bool,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = login_body(&parts.headers, body).await?;
    let wait = inside::wait(&api.0.broker, peer);
    if !wait.is_zero() {
        return Err(Problem::TooManyWrong { wait_s: wait.as_secs() + 1 });
    }
    let is_back = body.find("code").is_some();
    let token = match body.text("token")? {
        None if is_back => Some(code_login::token(api, peer, &parts.headers, &body).await?),
        token => token.map(str::to_owned),
    };
    let owner = match token {
        Some(token) => {
            let grant = inside::judge(&api.0.broker, token.as_bytes(), peer).await;
            Owner::of_token(grant.ok_or(Problem::NotKnown)?)
        }
        None => {
            let (user, password) = (body.needed("username")?, body.needed("password")?);
            by_password(api, user, password, peer).await?
        }
    };
    {
        let catalog = api.0.cluster.catalog();
        let who = who(&catalog, &owner).ok_or(Problem::NotKnown)?;
        let allowed = access::allow(who, Need::User, false, Named::default());
        allowed.map_err(|why| Problem::NotAuthorised(why.to_owned()))?;
    }
    let chance = draw()?;
    let name = cookie_name(api);
    let begun = with_sessions(api, |now, sessions| {
        // A browser has one session here.
        for old in cookies(&parts.headers, &name) {
            sessions.end(old);
        }
        sessions.begin(now, &chance, owner.clone())
    });
    let metrics = &api.0.metrics;
    Metrics::count(&metrics.sessions_begun);
    if begun.has_crowded_out {
        Metrics::count(&metrics.sessions_crowded_out);
    }
    tracing::info!(user = owner.user, %peer, "console: logged in");
    let mut response = unchallenged(Reply::of(told(api, &owner, &begun.csrf)));
    set_cookie(api, &mut response, &begun.token, is_tls);
    if is_back {
        code_login::forget(api, &mut response, is_tls);
    }
    Ok(response)
}

/// As for every login with a password, which may be a token.
async fn by_password(
    api: &Api,
    user: &str,
    password: &str,
    peer: SocketAddr,
) -> Result<Owner, Problem> {
    let broker = &api.0.broker;
    if inside::is_token(broker, password.as_bytes()) {
        let grant = inside::judge(broker, password.as_bytes(), peer).await;
        return Ok(Owner::of_token(grant.ok_or(Problem::NotKnown)?));
    }
    // Taken before: a password that changes while it is checked ends the session.
    let owner = Owner::of_password(&api.0.cluster.catalog(), user);
    match inside::is_right(broker, user, password.as_bytes(), peer).await {
        true => owner.ok_or(Problem::NotKnown),
        false => Err(Problem::NotKnown),
    }
}

fn shown(api: &Api, peer: SocketAddr, headers: &HeaderMap) -> Result<Response, Problem> {
    let found = find(api, headers, peer).ok_or(Problem::NoSession)?;
    Ok(unchallenged(Reply::of(told(api, &found.owner, &found.csrf))))
}

/// Ends the session. Who has none is logged out already. The cookie stays without a token: it says that a browser asks,
/// whose other tabs are to be told so in the page, and not by the browser's own window for passwords.
fn log_out(
    api: &Api,
    peer: SocketAddr,
    is_tls: bool,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if let Some(found) = find(api, headers, peer) {
        prove(api, &Method::DELETE, headers, &found)?;
        let name = cookie_name(api);
        let users: Vec<String> = with_sessions(api, |_, sessions| {
            cookies(headers, &name).filter_map(|token| sessions.end(token)).collect()
        });
        for user in users {
            tracing::info!(user, %peer, "console: logged out");
        }
    }
    let mut response = unchallenged(Reply::done());
    set_cookie(api, &mut response, "", is_tls);
    Ok(response)
}

/// Who is logged in, and what may be done.
fn told(api: &Api, owner: &Owner, csrf: &str) -> Value {
    let catalog = api.0.cluster.catalog();
    let tags = who(&catalog, owner).map(Who::tags).unwrap_or_default();
    let mut told = json!({ "user": owner.user, "tags": tags, "csrf": csrf });
    // What a token gives is not written as patterns.
    if owner.grant().is_none() {
        told["permissions"] = permissions(&catalog, &owner.user);
    }
    told
}

/// By vhost.
fn permissions(catalog: &Catalog, user: &str) -> Value {
    let all = catalog.user(user).into_iter().flat_map(|user| user.all_permissions());
    let shown = |permissions: &machine::Permissions| {
        json!({
            "configure": permissions.configure.text(),
            "write": permissions.write.text(),
            "read": permissions.read.text(),
        })
    };
    Value::Object(all.map(|(vhost, it)| (vhost.to_owned(), shown(it))).collect())
}

fn who<'a>(catalog: &'a Catalog, owner: &'a Owner) -> Option<Who<'a>> {
    Who::find(catalog, &owner.user, owner.grant().map(Arc::as_ref))
}
