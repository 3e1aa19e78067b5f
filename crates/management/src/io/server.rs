//! The port: who asks, which route it is, and its answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, RawPathParams, Request};
use axum::response::Response;
use axum::routing::{MethodRouter, any, on};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::io::inside;
use bytes::Bytes;
use certificates::ServerTls;
use http::request::Parts;
use http::{HeaderMap, Method, header};
use service::io::http::{Limits, Lost, Peer, serve_router};
use tokio::net::TcpListener;
use tower_service::Service as _;

use super::api::{Api, Caller};
use super::aside::aside;
use super::body::read_body;
use super::perform::perform;
use super::response::{response, unchallenged};
use super::{console, sessions};
use crate::access::{self, Named, Need, Who};
use crate::asked::Asked;
use crate::at::{self, AT};
use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_WAIT, NAME_BYTES_MAX, READER_WAIT};
use crate::metrics::Metrics;
use crate::node::{Facts, View};
use crate::reply::Problem;
use crate::routes::{ROUTES, Route, SESSION, SESSION_OAUTH};
use crate::work::Work;

async fn answer(
    api: &Api,
    route: &'static Route,
    params: &RawPathParams,
    peer: Peer,
    request: Request,
) -> Response {
    let is_browser = sessions::is_browser(api, request.headers());
    let answered = try_answer(api, route, params, peer, request).await;
    answered.unwrap_or_else(|problem| match is_browser {
        true => unchallenged(problem.reply()),
        false => response(problem.reply()),
    })
}

async fn try_answer(
    api: &Api,
    route: &'static Route,
    params: &RawPathParams,
    Peer(peer): Peer,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    // Nobody who is not known makes the node read a body.
    let caller = caller(api, &parts, peer).await?;
    let path: BTreeMap<String, String> =
        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let changes = route.method != Method::GET;
    {
        let catalog = api.0.cluster.catalog();
        let user = Who::find(&catalog, &caller.user, caller.grant.as_deref());
        let user = user.ok_or_else(not_known)?;
        let part = |name: &str| path.get(name).map(String::as_str);
        let named = Named { vhost: part("vhost"), queue: part("queue") };
        let allowed = access::allow(user, route.need, changes, named);
        allowed.map_err(|why| Problem::NotAuthorised(why.to_owned()))?;
    }
    // Names that AMQP cannot carry would be cut, and mean something else.
    let is_long = |(part, value): (&String, &String)| part != "key" && value.len() > NAME_BYTES_MAX;
    if path.iter().any(is_long) {
        return Err(Problem::bad(format!("a name has at most {NAME_BYTES_MAX} bytes")));
    }
    let turns = if changes { &api.0.changing } else { &api.0.asking };
    let _turn = if route.is_small { None } else { Some(turns.acquire().await) };
    let body = read_body(body, route.body_bytes).await?;
    let asked = asked(&caller, path, &parts, body);
    let (work, facts) = match route.is_small {
        true => decide(api, route, &asked)?,
        false => decide_aside(api, route, asked).await?,
    };
    let reply = perform(api, &caller, &facts, work).await?;
    let Caller { user, peer, .. } = &caller;
    let (method, path) = (route.method.as_str(), parts.uri.path());
    if changes && route.is_small {
        tracing::debug!(user, %peer, method, path, status = reply.status().as_u16(), "HTTP API: done");
    } else if changes {
        tracing::info!(user, %peer, method, path, status = reply.status().as_u16(), "HTTP API: done");
    } else if route.need == Need::Peek {
        tracing::info!(user, %peer, path, "HTTP API: messages were looked at");
    }
    Ok(reply)
}

/// What the route decides.
fn decide(api: &Api, route: &Route, asked: &Asked) -> Result<(Work, Facts), Problem> {
    let facts = api.facts();
    let catalog = api.0.cluster.catalog();
    let work = (route.decide)(&View { catalog: &catalog, facts: &facts }, asked)?;
    Ok((work, facts))
}

/// The same of one that may look through 100,000 queues.
async fn decide_aside(
    api: &Api,
    route: &'static Route,
    asked: Asked,
) -> Result<(Work, Facts), Problem> {
    let api = api.clone();
    aside(move || decide(&api, route, &asked)).await?
}

/// Who asks, if the password or the token is right, or else if there is a session. A login that is sent with the request
/// counts before a cookie.
async fn caller(api: &Api, parts: &Parts, peer: SocketAddr) -> Result<Caller, Problem> {
    let (broker, headers) = (&api.0.broker, &parts.headers);
    if !headers.contains_key(header::AUTHORIZATION) && sessions::is_browser(api, headers) {
        return sessions::caller(api, &parts.method, headers, peer);
    }
    let (user, password) = match login(headers).ok_or_else(not_known)? {
        Login::Basic { user, password } if !inside::is_token(broker, password.as_bytes()) => {
            (user, password)
        }
        Login::Basic { password: token, .. } | Login::Bearer { token } => {
            let grant = inside::judge(broker, token.as_bytes(), peer).await;
            let grant = grant.ok_or_else(not_known)?;
            let user = grant.user.clone();
            return Ok(Caller { user, grant: Some(grant), session: None, peer });
        }
    };
    match inside::is_right(broker, &user, password.as_bytes(), peer).await {
        true => Ok(Caller { user, grant: None, session: None, peer }),
        false => Err(not_known()),
    }
}

fn not_known() -> Problem {
    Problem::NotKnown
}

/// How somebody says who it is. Nothing prints it.
enum Login {
    /// RFC 7617.
    Basic { user: String, password: String },
    /// RFC 6750.
    Bearer { token: String },
}

fn login(headers: &HeaderMap) -> Option<Login> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, said) = given.split_once(' ')?;
    let said = said.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Login::Bearer { token: said.to_owned() });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(said).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(Login::Basic { user: user.to_owned(), password: password.to_owned() })
}

fn asked(caller: &Caller, path: BTreeMap<String, String>, parts: &Parts, body: Bytes) -> Asked {
    let query = parts.uri.query().unwrap_or_default();
    let reason = parts.headers.get("x-reason").and_then(|reason| reason.to_str().ok());
    Asked {
        user: caller.user.clone(),
        grant: caller.grant.clone(),
        path,
        query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        body,
        reason: reason.map(str::to_owned),
    }
}

/// Answers until it is dropped, under TLS if there is something to show.
pub async fn serve(listener: TcpListener, tls: Option<Arc<ServerTls>>, api: Api) {
    let limits = Limits {
        connections: CONNECTIONS_MAX,
        request_bytes: HEAD_BYTES_MAX,
        time: HEAD_WAIT,
        keeps: true,
        patience: READER_WAIT,
    };
    let metrics = &api.0.metrics;
    let count = |lost| match lost {
        Lost::NoRoom => Metrics::count(&metrics.turned_away),
        Lost::SlowReader => Metrics::count(&metrics.slow_readers),
    };
    let router = with_paths_in_queries(router(&api, tls.is_some()));
    serve_router(limits, listener, tls, router, count).await;
}

/// All routes, each also with a slash behind it: some clients ask so. Other paths are the console's.
fn router(api: &Api, is_tls: bool) -> Router {
    let mut router = Router::new();
    let mut paths: BTreeMap<&str, MethodRouter> = BTreeMap::new();
    for route in ROUTES {
        let api = api.clone();
        let answered = async move |params: RawPathParams,
                                   Extension(peer): Extension<Peer>,
                                   request: Request| {
            answer(&api, route, &params, peer, request).await
        };
        let filter = route.method.clone().try_into().expect("a method of the table is a usual one");
        let known = paths.remove(route.path).unwrap_or_default();
        paths.insert(route.path, known.merge(on(filter, answered)));
    }
    for (path, methods) in paths {
        let methods = methods.fallback(async || response(Problem::Method.reply()));
        router = router.route(&format!("/api{path}"), methods.clone());
        router = router.route(&format!("/api{path}/"), methods);
    }
    let of_sessions = api.clone();
    let session = async move |Extension(Peer(peer)): Extension<Peer>, request: Request| {
        sessions::answer(&of_sessions, peer, is_tls, request).await
    };
    router = router.route(&format!("/api{SESSION}"), any(session.clone()));
    router = router.route(&format!("/api{SESSION_OAUTH}"), any(session));
    let api = api.clone();
    router.fallback(async move |request: Request| console::file(&api, request).await)
}

/// The same, and one path that is answered as the one in its query is: nothing else knows of it, so who may ask what is
/// judged by the path that is meant.
fn with_paths_in_queries(router: Router) -> Router {
    let routes = router.clone();
    let answered = async move |mut request: Request| match at::meant(
        request.uri().query().unwrap_or_default(),
    ) {
        Ok(meant) => {
            *request.uri_mut() = meant;
            routes.clone().call(request).await.unwrap_or_else(|never| match never {})
        }
        Err(problem) => response(problem.reply()),
    };
    let router = router.route(&format!("/api{AT}"), any(answered.clone()));
    router.route(&format!("/api{AT}/"), any(answered))
}
