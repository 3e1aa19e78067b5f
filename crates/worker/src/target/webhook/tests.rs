use super::*;
use crate::job::Header;
use crate::outcome::{Outcome, Scope};

const NOW_MS: u64 = 784_111_777_000;

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

fn https() -> Settings {
    settings("url = 'https://example.com/hook'")
}

fn job() -> Message {
    Message {
        id: "job-1".into(),
        kind: "mail".into(),
        attempt: 3,
        body: "{}".into(),
        ..Message::default()
    }
}

fn requests(settings: &Settings) -> Requests {
    Requests::new(settings, &BTreeMap::new(), &[]).unwrap()
}

fn signature(secret: &str, id: &str, seconds: u64, body: &str) -> String {
    Signer::new(&[secret.into()]).unwrap().sign(id, seconds, body.as_bytes()).unwrap()
}

fn answer(settings: &Settings, status: u16, headers: &[(&'static str, &str)]) -> Outcome {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    judge(settings, status, &headers.iter().map(pair).collect(), b"a body", NOW_MS)
}

#[test]
fn signatures_are_those_of_the_public_examples() {
    let signed = signature(
        "whsec_plJ3nmyCDGBKInavdOK15jsl",
        "msg_loFOjxBNrRLzqYUf",
        1_731_705_121,
        r#"{"event_type":"ping","data":{"success":true}}"#,
    );
    assert_eq!(signed, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=");
    let signed = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
    );
    assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn every_secret_signs_and_a_wrong_one_is_named_without_its_text() {
    let secrets = ["whsec_plJ3nmyCDGBKInavdOK15jsl", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];
    let signer = Signer::new(&secrets.map(String::from)).unwrap();
    let each = secrets.map(|secret| signature(secret, "a", 1, "x"));
    assert_eq!(signer.sign("a", 1, b"x").unwrap(), each.join(" "));
    for bad in ["plJ3nmyCDGBKInavdOK15jsl", "whsec_CANARY!", "whsec_YQ=="] {
        let why = Signer::new(&[bad.into()]).unwrap_err();
        assert!(why.contains("secret 1") && !why.contains(bad), "{why}");
    }
    assert!(!format!("{signer:?}").contains("plJ3"));
}

#[test]
fn a_request_carries_the_id_the_time_and_the_attempt() {
    let request = requests(&https()).request(&job(), 1234).unwrap();
    let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(request.method(), http::Method::POST);
    assert_eq!(request.uri(), "https://example.com/hook");
    assert_eq!(header("webhook-id"), "job-1");
    assert_eq!(header("idempotency-key"), "job-1");
    assert_eq!(header("webhook-timestamp"), "1234");
    assert_eq!(header("millrace-job-attempt"), "3");
    assert_eq!(header("millrace-job-type"), "mail");
    assert_eq!(header("content-type"), "application/json");
    assert!(!request.headers().contains_key("webhook-signature"));
}

#[test]
fn a_job_fills_the_path_and_never_the_host() {
    let set = settings("url = 'https://example.com/{type}/{header:Tenant}?id={id}'");
    let mut job = job();
    job.kind = "a/../b?c#d e".into();
    job.headers.push(Header { name: "tenant".into(), value: "ü@h".into() });
    let url = requests(&set).request(&job, 1).unwrap().uri().to_string();
    assert_eq!(url, "https://example.com/a%2F..%2Fb%3Fc%23d%20e/%C3%BC%40h?id=job-1");
    for bad in ["..", ".", ""] {
        job.kind = bad.into();
        assert!(requests(&set).request(&job, 1).is_err(), "{bad}");
    }
    let wrong = [
        "https://{type}/",
        "https://{header:h}.example.com/",
        "https://example.com:{id}/",
        "{type}://a/",
        "ftp://a/",
        "https://u:p@a/",
        "https://a/{nothing}",
        "https://a/{type",
        "https://a/#x",
        "/only",
        "https://256.1.1.1/",
        "https://a{type}",
        "https://example.com{id}/x",
    ];
    for bad in wrong {
        assert!(Template::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_job_chooses_its_url_only_where_that_is_allowed() {
    let mut job = job();
    let own = Header { name: "webhook-url".into(), value: "https://other.example/x".into() };
    job.headers.push(own);
    let fixed = requests(&https()).request(&job, 1).unwrap();
    assert_eq!(fixed.uri(), "https://example.com/hook");
    let open = settings("allow_job_urls = true");
    assert_eq!(requests(&open).request(&job, 1).unwrap().uri(), "https://other.example/x");
    for bad in ["file:///etc/passwd", "gopher://a/", "https://a/{type}", "https://u@a/", "x"] {
        job.headers[0].value = bad.into();
        assert!(requests(&open).request(&job, 1).is_err(), "{bad}");
    }
    job.headers.clear();
    assert!(requests(&open).request(&job, 1).is_err());
}

#[test]
fn a_header_cannot_be_smuggled_in() {
    let mut job = job();
    job.id = "a\r\nx-evil: 1".into();
    assert!(requests(&https()).request(&job, 1).is_err());
    let set = settings("url = 'https://a/'\nforward_headers = ['x-a']");
    job.id = "a".into();
    job.headers.push(Header { name: "X-A".into(), value: "1".into() });
    job.headers.push(Header { name: "authorization".into(), value: "stolen".into() });
    let request = requests(&set).request(&job, 1).unwrap();
    assert_eq!(request.headers()["x-a"], "1");
    assert!(!request.headers().contains_key("authorization"));
    job.headers[0].value = "1\n2".into();
    assert!(requests(&set).request(&job, 1).is_err());
}

#[test]
fn every_status_has_its_outcome() {
    let set = settings("url = 'https://a/'\nretry_4xx = [404]");
    let rows: [(&[u16], &str); 6] = [
        (&[200, 201, 202, 204, 299], "done"),
        (&[404, 408, 421, 425, 500, 501, 502, 503, 504, 507, 599, 600, 999], "retry"),
        (&[429], "throttle"),
        (&[300, 301, 302, 303, 304, 307, 308, 399], "reject"),
        (&[400, 402, 403, 405, 409, 410, 413, 418, 422, 451, 499], "reject"),
        (&[401], "config"),
    ];
    for (statuses, expected) in rows {
        for status in statuses {
            assert_eq!(answer(&set, *status, &[]).name(), expected, "{status}");
        }
    }
    assert_eq!(answer(&https(), 404, &[]).name(), "reject");
    assert_eq!(answer(&settings("allow_job_urls = true"), 401, &[]).name(), "reject");
}

#[test]
fn retry_after_is_obeyed_up_to_its_bound() {
    let until = |value: &str| match answer(&https(), 429, &[("retry-after", value)]) {
        Outcome::Throttle { scope: Scope::Target, until, .. } => until.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(until("7"), 7);
    assert_eq!(until("1000000000"), 3600);
    assert_eq!(until("99999999999999999999999999"), 3600);
    assert_eq!(until("Sun, 06 Nov 1994 08:49:47 GMT"), 10);
    assert_eq!(until("Sun, 06 Nov 1994 08:49:27 GMT"), 0);
    for nonsense in ["-5", "soon", "", "1.5"] {
        assert_eq!(until(nonsense), 10, "{nonsense}");
    }
    let ill = answer(&https(), 503, &[("retry-after", "30")]);
    let Outcome::Retry { after, .. } = ill else { panic!("{ill:?}") };
    assert_eq!(after, Some(Duration::from_secs(30)));
}

#[test]
fn wrong_settings_are_all_named() {
    let set = settings(
        "timeout = '1ms'\nresponse_bytes_max = 99999999\nretry_4xx = [500]\ncertificate = 'a'\n\
         connections_max = 0\nforward_headers = ['host', 'webhook-id', 'a b']",
    );
    assert_eq!(set.problems().len(), 9, "{:?}", set.problems());
    assert_eq!(https().problems(), Vec::<String>::new());
    assert!(toml::from_str::<Settings>("url = 'http://a/'\nverify = false").is_err());
    let secret = settings("url='http://a/'\nsecrets=['whsec_CANARY']");
    assert!(!format!("{secret:?}").contains("CANARY"));
}
