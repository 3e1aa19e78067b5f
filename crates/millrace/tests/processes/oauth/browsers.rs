//! A browser logs in at an identity server, and comes back to the node with a code.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::issuer::Issuer;
use super::key_server::KeyServer;
use super::{ALL, Broker};
use crate::client_tls::Authority;
use crate::management::{Answer, send};

const SESSION: &str = "/millrace/session";
const BEGIN: &str = "/millrace/session/oauth";
const BACK: &str = "http://node.example:15672/";

/// A browser with these cookies.
fn ask(broker: &Broker, cookies: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = format!("content-type: application/json\r\ncookie: {cookies}\r\n");
    send(&broker.api, &headers, method, path, &body.to_string())
}

/// The cookies that an answer sets, with what belongs to them.
fn set(answer: &Answer) -> Vec<&str> {
    let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).map(|(_, it)| it).collect()
}

/// A value of the query that browsers are sent with, or of a form.
fn value(query: &str, wanted: &str) -> String {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == wanted).unwrap_or_else(|| panic!("{wanted}: {query}")).1.into()
}

/// Sends a browser away: what it is sent with, and its cookie.
fn begun(broker: &Broker) -> (String, String) {
    let begun = ask(broker, "", "POST", BEGIN, &json!({ "redirect_uri": BACK }));
    assert_eq!(begun.status, 200, "{}", begun.body);
    let cookie = set(&begun)[0];
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let place = begun.body["place"].as_str().unwrap();
    let (server, query) = place.split_once('?').unwrap();
    assert!(server.ends_with("/auth"), "{place}");
    (query.to_owned(), cookie.split(';').next().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_comes_back_with_a_code_that_it_alone_can_use() {
    let authority = Authority::new("oauth-browsers");
    let server = KeyServer::start(&authority).await;
    let issuer = Issuer::new("one");
    let port = server.address.port();
    let settings = [
        "oauth_client_id=console".to_owned(),
        format!("oauth_authorize_url=https://localhost:{port}/auth"),
        format!("oauth_token_url=https://localhost:{port}/token"),
        "oauth_scopes=openid rabbitmq".to_owned(),
        format!("oauth_jwks_cacertfile={}", authority.file("ca.pem")),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let broker = Broker::start("browsers", &issuer.set(), &settings);
    assert_eq!(ask(&broker, "", "GET", BEGIN, &Value::Null).body, json!({ "host": "localhost" }));

    let token = issuer.token("ann", &format!("{ALL} rabbitmq.tag:management"), 600);
    server.show(&json!({ "access_token": token, "token_type": "Bearer" }).to_string());
    let (query, cookie) = begun(&broker);
    assert_eq!(
        (value(&query, "client_id"), value(&query, "scope")),
        ("console".into(), "openid rabbitmq".into())
    );
    assert_eq!(value(&query, "redirect_uri"), BACK);
    let back = |query: &str| json!({ "code": "c0de", "state": value(query, "state"), "redirect_uri": BACK });

    // Another browser was given the code, or this one a code of somebody else.
    let (other_query, other_cookie) = begun(&broker);
    for (cookies, body) in
        [("", back(&query)), (&*other_cookie, back(&query)), (&*cookie, back(&other_query))]
    {
        let refused = ask(&broker, cookies, "POST", SESSION, &body);
        assert!(refused.status >= 400 && set(&refused).is_empty(), "{}", refused.head);
    }
    assert_eq!(server.asked(), 0, "the server was not asked");

    let came = ask(&broker, &cookie, "POST", SESSION, &back(&query));
    assert_eq!((came.status, &came.body["user"]), (200, &json!("ann")), "{}", came.body);
    let form = server.received();
    let form = form.split_once("\r\n\r\n").unwrap().1;
    let verifier = value(form, "code_verifier");
    assert_eq!(URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier)), value(&query, "code_challenge"));
    assert_eq!((value(form, "code"), value(form, "redirect_uri")), ("c0de".into(), BACK.into()));
    let [session, forgotten] = set(&came)[..] else { panic!("{}", came.head) };
    assert!(forgotten.contains("Max-Age=0"), "a code is good for once: {forgotten}");
    let session = session.split(';').next().unwrap();
    assert_eq!(ask(&broker, session, "GET", "/whoami", &Value::Null).body["name"], "ann");

    // The server refuses the code, or gives a token that is none.
    for answer in [
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{\"access_token\":\"a.b.c\"}".to_owned(),
    ] {
        server.answer(&answer);
        let (query, cookie) = begun(&broker);
        let refused = ask(&broker, &cookie, "POST", SESSION, &back(&query));
        assert_eq!((refused.status, set(&refused).len()), (401, 0), "{answer}: {}", refused.body);
    }
    assert!(broker.log().contains("the identity server gave no token"), "{}", broker.log());
    assert!(
        !broker.log().contains(&token) && !broker.log().contains(&verifier),
        "no secret in the log"
    );
}

#[test]
fn a_node_without_an_identity_server_says_so() {
    let broker = Broker::start("no-browsers", &Issuer::new("one").set(), &[]);
    assert_eq!(ask(&broker, "", "GET", BEGIN, &Value::Null).body, json!({ "host": null }));
    let begun = ask(&broker, "", "POST", BEGIN, &json!({ "redirect_uri": BACK }));
    assert_eq!(begun.status, 404);
}
