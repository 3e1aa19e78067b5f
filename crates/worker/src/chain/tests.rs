use super::*;

fn before() -> Message {
    Message {
        id: "order-1".into(),
        content_type: Some("text/plain".into()),
        body: Bytes::from_static(b"the first body"),
        ..Message::default()
    }
}

#[test]
fn what_follows_is_published_with_ids_that_are_the_same_every_time() {
    let text = r#"[{"queue":"mail","type":"send","key":"ann","body":{"to":"ann"},"delay_ms":1500},
                   {"exchange":"events","routing_key":"order.done"}]"#;
    let next = parse(text).unwrap();
    let publishes = publishes(&next, &before());
    assert_eq!(publishes, super::publishes(&parse(text).unwrap(), &before()));
    let [mail, event] = &publishes[..] else { panic!("{publishes:?}") };
    assert_eq!((mail.exchange.as_str(), mail.routing_key.as_str()), ("", "mail"));
    assert_eq!((mail.message.id.as_str(), mail.message.kind.as_str()), ("order-1>0", "send"));
    assert_eq!(mail.message.body, Bytes::from_static(br#"{"to":"ann"}"#));
    assert_eq!(mail.message.content_type.as_deref(), Some("application/json"));
    assert_eq!(mail.key.as_deref(), Some("ann"));
    assert_eq!(mail.delay, Some(Duration::from_millis(1500)));
    assert_eq!((event.exchange.as_str(), event.routing_key.as_str()), ("events", "order.done"));
    assert_eq!(event.message.id, "order-1>1");
    assert_eq!(event.message.body, before().body, "without a body of its own it has the job's");
    assert_eq!(event.message.content_type.as_deref(), Some("text/plain"));
}

#[test]
fn a_chain_goes_on_in_the_job_that_it_published() {
    let text = r#"[{"queue":"b","body":"x","then":[{"queue":"c","then":[{"queue":"d"}]}]}]"#;
    let b = &publishes(&parse(text).unwrap(), &before())[0].message;
    let then = b.extras.as_ref().unwrap().then.as_deref().unwrap();
    let c = &publishes(&parse(then).unwrap(), b)[0];
    assert_eq!((c.routing_key.as_str(), c.message.id.as_str()), ("c", "order-1>0>0"));
    assert_eq!(c.message.body, Bytes::from_static(b"x"));
    assert!(c.message.extras.as_ref().unwrap().then.is_some());
}

#[test]
fn what_cannot_be_published_is_refused_with_its_reason() {
    let long = "x".repeat(300);
    let mut deep = r#"[{"queue":"q"}]"#.to_owned();
    for _ in 0..CHAIN_DEPTH_MAX {
        deep = format!(r#"[{{"queue":"q","then":{deep}}}]"#);
    }
    let many = vec![r#"{"queue":"q"}"#; CHAIN_JOBS_MAX + 1].join(",");
    let cases = [
        ("{}", "no list"),
        ("[{}]", "neither"),
        (r#"[{"queue":"a","exchange":"b"}]"#, "beside"),
        (r#"[{"queue":""}]"#, "without a name"),
        (r#"[{"queue":"a","retries":3}]"#, "retries"),
        (r#"[{"queue":"a","delay_ms":999999999999}]"#, "delay"),
        (r#"[{"queue":"a","then":[{"queue":"b","then":7}]}]"#, "no list"),
        (r#"[{"queue":"a","batch":{"id":"b"}}]"#, "batch"),
        (&format!(r#"[{{"queue":"{long}"}}]"#), "longer"),
        (&format!("[{many}]"), "more than"),
        (&" ".repeat(CHAIN_BYTES_MAX + 1), "bytes"),
        (&deep, "deeper"),
    ];
    for (text, word) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.contains(word), "{error} does not say {word}");
    }
}

#[test]
fn an_id_that_no_broker_carries_is_hashed() {
    let long = "x".repeat(250);
    assert_eq!(derived_id(&long), long);
    assert_eq!(derived_id(&"x".repeat(256)).len(), 64);
    assert_ne!(derived_id(&"x".repeat(256)), derived_id(&"x".repeat(257)));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}\":,a-z0-9 ]{0,200}") {
        let _ = parse(&text);
    }
}
