//! What browsers show and are given: cookies, the bodies of logins, chance for secrets.

use http::{HeaderMap, header};
use rustix::rand::{GetRandomFlags, getrandom};

use super::body::read_body;
use crate::asked::{Asked, Body};
use crate::limits::LOGIN_BYTES_MAX;
use crate::reply::Problem;
use crate::sessions::Chance;

/// Behind the name of a cookie that a browser sends under TLS only: it could not be replaced without TLS.
const SEALED: &str = "_tls";

/// What the browser shows for this node under the name of a cookie: one of them may be ours.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let pairs = all.flat_map(|it| it.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let is_ours = move |known: &str| known.strip_suffix(SEALED).unwrap_or(known) == name;
    pairs.filter(move |(known, _)| is_ours(known)).map(|(_, token)| token)
}

/// What belongs behind the name of a cookie, and at its end.
pub(super) fn suffix(is_tls: bool) -> (&'static str, &'static str) {
    if is_tls { (SEALED, "; Secure") } else { ("", "") }
}

/// The body of a login. A form of another site can send anything but this type.
pub(super) async fn login_body(
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Body, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Problem::bad("a login is sent as application/json"));
    }
    Asked { body: read_body(body, LOGIN_BYTES_MAX).await?, ..Asked::default() }.object()
}

pub(super) fn draw() -> Result<Chance, Problem> {
    let mut chance: Chance = [0; 64];
    match getrandom(&mut chance, GetRandomFlags::empty()) {
        Ok(count) if count == chance.len() => Ok(chance),
        Ok(_) | Err(_) => {
            Err(Problem::Unavailable("the operating system gives no random bytes".to_owned()))
        }
    }
}
