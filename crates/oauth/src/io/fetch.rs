//! One request to an HTTPS server: bounded in time and bytes. No redirect is followed: the operator names where the keys
//! are.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::limits::{FETCH_WAIT, HEAD_BYTES_MAX, KEY_SET_BYTES_MAX};

const PORT: u16 = 443;

/// A URL that keys can be asked for at.
///
/// # Errors
/// In words: it is none.
pub(super) fn https(url: &str) -> Result<Uri, String> {
    if url.contains('@') {
        return Err("a URL with a user or a password is not taken".to_owned());
    }
    let uri: Uri = url.parse().map_err(|error| format!("\"{url}\" is no URL: {error}"))?;
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if uri.scheme_str() == Some("https") && has_host {
        return Ok(uri);
    }
    Err(format!(
        "\"{url}\" must begin with https:// and name a host: keys from elsewhere could be anybody's"
    ))
}

/// What the server answers.
///
/// # Errors
/// In words: there is no answer in time, or it is none that keys can be in.
pub(super) async fn get(url: &Uri, authority: Option<&Path>) -> Result<Bytes, String> {
    ask(url, authority, None).await
}

/// The same for a form that is sent.
pub(super) async fn post(
    url: &Uri,
    authority: Option<&Path>,
    form: String,
) -> Result<Bytes, String> {
    ask(url, authority, Some(form)).await
}

async fn ask(url: &Uri, authority: Option<&Path>, form: Option<String>) -> Result<Bytes, String> {
    let answered = tokio::time::timeout(FETCH_WAIT, exchange(url, authority, form)).await;
    let answered = answered.unwrap_or_else(|_| Err(format!("no answer in {FETCH_WAIT:?}")));
    answered.map_err(|why| format!("{url}: {why}"))
}

async fn exchange(
    url: &Uri,
    authority: Option<&Path>,
    form: Option<String>,
) -> Result<Bytes, String> {
    let stream = connect(url, authority).await?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let opened = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(words)?;
    let request = request(url, form)?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(words)?;
        if answer.status() != StatusCode::OK {
            return Err(format!("it answers {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), KEY_SET_BYTES_MAX).collect().await;
        let body =
            body.map_err(|error| format!("its answer breaks off or is too large: {error}"))?;
        Ok(body.to_bytes())
    };
    tokio::pin!(answered);
    tokio::pin!(connection);
    tokio::select! {
        answer = &mut answered => answer,
        // The connection is over; what it has brought is still there to be taken.
        ended = &mut connection => match ended {
            Ok(()) => answered.await,
            Err(error) => Err(words(error)),
        },
    }
}

async fn connect(
    url: &Uri,
    authority: Option<&Path>,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    // An IPv6 address stands in brackets.
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_u16().unwrap_or(PORT);
    let name = ServerName::try_from(host.clone())
        .map_err(|_| format!("`{host}` cannot be a name in a certificate"))?;
    let roots = certificates::authorities(authority)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(words)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(words)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(words)
}

fn request(url: &Uri, form: Option<String>) -> Result<Request<Full<Bytes>>, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let place = url.authority().map_or("", |authority| authority.as_str());
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, place)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, "Millrace");
    if form.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    request.body(Full::from(form.unwrap_or_default())).map_err(words)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_asked_for_under_tls_only() {
        assert!(https("https://id.example/realms/shop/protocol/openid-connect/certs").is_ok());
        assert!(https("https://[::1]:8443/keys?x=y").is_ok());
        for wrong in ["http://id.example/keys", "id.example/keys", "/keys", "https://", "no url"] {
            assert!(https(wrong).is_err(), "{wrong}");
        }
        let why = https("https://ann:hunter2@id.example/keys").unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }
}
