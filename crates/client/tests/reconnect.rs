//! The handles against a small scripted server on loopback: what happens when connections end.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test with a server of its own opens sockets and starts tasks"
)]

use std::time::Duration;

use amqp::{Method, basic, channel, connection, queue};
use client::{Address, Consumer, ConsumerOptions, Error, Options, Outcome, Publisher, Url};
use peer::{Peer, Sent};
use tokio::net::TcpListener;

#[path = "support/peer.rs"]
mod peer;

async fn listen() -> (TcpListener, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://127.0.0.1:{}", listener.local_addr().unwrap().port());
    (listener, url.parse().unwrap())
}

fn options() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

#[tokio::test]
async fn what_was_unconfirmed_when_the_connection_was_lost_is_published_again() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "b", "c"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(2, false);
        peer.flush().await;
        drop(peer);

        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "c"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(2, true);
        peer.goodbye().await;
    });
    let mut publisher = Publisher::open(&url, &options(), 10).await.unwrap();
    for body in ["a", "b", "c"] {
        let properties = amqp::Properties::default();
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    let settled = publisher.settle_all().await.unwrap();
    assert_eq!((settled.confirmed, settled.is_clean()), (3, true));
    assert_eq!(publisher.repeated(), 2, "a and c may be stored twice, and the caller can say so");
    publisher.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn deliveries_of_a_lost_connection_come_again_and_their_old_tags_mean_nothing() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, false, "a");
        peer.flush().await;
        drop(peer);

        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, true, "a");
        peer.deliver(2, false, "b");
        assert_eq!(peer.next().await, Sent::Ack(2, true));
        peer.goodbye().await;
    });
    let how = ConsumerOptions { ack_wait: Duration::from_secs(60), ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&url, &options(), "q", how).await.unwrap();
    let first = consumer.next().await.unwrap();
    let again = consumer.next().await.unwrap();
    assert_eq!((&first.body[..], &again.body[..]), (&b"a"[..], &b"a"[..]));
    assert!(!first.redelivered && again.redelivered);
    let second = consumer.next().await.unwrap();
    for delivery in [&first, &again, &second] {
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn acknowledgements_go_out_after_their_wait_without_further_deliveries() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, false, "a");
        assert_eq!(peer.next().await, Sent::Ack(1, false));
        peer.deliver(2, false, "b");
        peer.goodbye().await;
    });
    let mut consumer =
        Consumer::open(&url, &options(), "q", ConsumerOptions::default()).await.unwrap();
    let delivery = consumer.next().await.unwrap();
    consumer.settle(delivery.tag, Outcome::Done).unwrap();
    // The server sends the second only once the first is acknowledged.
    assert_eq!(&consumer.next().await.unwrap().body[..], b"b");
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_consumer_that_is_held_back_acknowledges_and_takes_nothing_until_it_reads_again() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, false, "a");
        // Its acknowledgement comes although the client reads nothing more.
        assert_eq!(peer.next().await, Sent::Ack(1, false));
        peer.deliver(2, false, "b");
        peer.goodbye().await;
    });
    let how = ConsumerOptions { ack_every: 1, ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&url, &options(), "q", how).await.unwrap();
    let first = consumer.next().await.unwrap();
    consumer.hold_back(true);
    consumer.settle(first.tag, Outcome::Done).unwrap();
    let held = tokio::time::timeout(Duration::from_millis(300), async {
        loop {
            consumer.drive().await.unwrap();
            assert!(consumer.try_next().is_none(), "it was read");
        }
    });
    assert!(held.await.is_err(), "it waits for ever");
    consumer.hold_back(false);
    assert_eq!(&consumer.next().await.unwrap().body[..], b"b");
    assert_eq!(consumer.lost_connections(), 0);
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_an_error_at_once_and_not_another_attempt() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.expect("basic.qos").await;
        peer.say(&Method::BasicQosOk(basic::QosOk));
        peer.expect("basic.consume").await;
        let reply_text = "NOT_FOUND - no queue 'q' in vhost '/'";
        let close = channel::Close { reply_code: 404, reply_text, class_id: 60, method_id: 20 };
        peer.say(&Method::ChannelClose(close));
        peer.next().await;
    });
    let how = ConsumerOptions::default();
    let refused = Consumer::open(&url, &options(), "q", how).await.err().unwrap();
    assert_eq!(refused.code(), Some(404));
    server.await.unwrap();
}

#[tokio::test]
async fn a_blocked_publisher_waits_until_it_is_unblocked() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        assert_eq!(peer.next().await, Sent::Publish("a".into()));
        peer.say(&Method::ConnectionBlocked(connection::Blocked { reason: "low on memory" }));
        peer.ack(1, false);
        peer.say(&Method::ConnectionUnblocked(connection::Unblocked));
        assert_eq!(peer.next().await, Sent::Publish("b".into()));
        peer.ack(2, false);
        peer.goodbye().await;
    });
    let mut publisher = Publisher::open(&url, &options(), 1).await.unwrap();
    let properties = amqp::Properties::default();
    for body in ["a", "b"] {
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    assert_eq!(publisher.close().await.unwrap().confirmed, 2);
    server.await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_comes_back_is_given_up_after_the_agreed_time() {
    let (listener, url) = listen().await;
    drop(listener);
    let options = Options { retry_for: Duration::from_millis(200), ..options() };
    let error = Publisher::open(&url, &options, 10).await.err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_refused_declaration_leaves_the_connection_good_for_the_next() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.expect("queue.declare").await;
        let reply_text = "PRECONDITION_FAILED - inequivalent arg 'durable'";
        let close = channel::Close { reply_code: 406, reply_text, class_id: 50, method_id: 10 };
        peer.say(&Method::ChannelClose(close));
        peer.expect("channel.close-ok").await;
        // The next request opens a channel again.
        peer.expect("channel.open").await;
        peer.say(&Method::ChannelOpenOk(channel::OpenOk));
        peer.expect("queue.declare").await;
        let ok = queue::DeclareOk { queue: "q", message_count: 7, consumer_count: 0 };
        peer.say(&Method::QueueDeclareOk(ok));
        peer.goodbye().await;
    });
    let mut connection = client::Connection::open(&url, &options()).await.unwrap();
    let spec = client::QueueSpec::durable("q");
    assert_eq!(connection.declare_queue(&spec).await.unwrap_err().code(), Some(406));
    assert_eq!(connection.look_up_queue("q").await.unwrap().message_count, 7);
    connection.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn without_retry_a_loss_is_told_at_once_and_nothing_is_sent_twice() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "b"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(1, false);
        peer.flush().await;
        drop(peer);
        // Nobody connects again.
        let again = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
        assert!(again.is_err(), "the publisher connected again by itself");
    });
    let mut publisher = Publisher::open(&url, &options().without_retry(), 10).await.unwrap();
    let properties = amqp::Properties::default();
    for body in ["a", "b"] {
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    assert!(publisher.unconfirmed_bytes() > 2);
    let mut verdicts = Vec::new();
    let lost = loop {
        if let Err(error) = publisher.drive(&mut verdicts).await {
            break error;
        }
    };
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");
    publisher.take_verdicts(&mut verdicts);
    let mut settled = client::Settled::default();
    settled.add(verdicts);
    assert_eq!((settled.confirmed, publisher.unconfirmed()), (1, 1));
    // It is over, and says so however it is asked.
    let to = Address::queue("q");
    assert_eq!(publisher.publish(to, &properties, b"c").await, Err(lost.clone()));
    assert_eq!(publisher.try_publish(to, &properties, b"c"), Err(lost.clone()));
    assert_eq!(publisher.flush().await, Err(lost.clone()));
    assert_eq!(publisher.has_exchange("x").await, Err(lost.clone()));
    assert_eq!(publisher.settle_all().await, Err(lost));
    server.await.unwrap();
}

#[tokio::test]
async fn without_retry_a_closed_channel_is_told_with_the_servers_words_and_the_verdicts_before_it()
{
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "b"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(1, false);
        let reply_text = "NOT_FOUND - no exchange 'gone' in vhost '/'";
        let close = channel::Close { reply_code: 404, reply_text, class_id: 60, method_id: 40 };
        peer.say(&Method::ChannelClose(close));
        peer.flush().await;
        // One read for the client: the confirm, the refusal and the end.
        drop(peer);
    });
    let mut publisher = Publisher::open(&url, &options().without_retry(), 10).await.unwrap();
    let to = Address { exchange: "gone", routing_key: "k", mandatory: true };
    for body in ["a", "b"] {
        publisher.publish(to, &amqp::Properties::default(), body.as_bytes()).await.unwrap();
    }
    let refused = publisher.settle_all().await.unwrap_err();
    assert_eq!(refused.code(), Some(404), "{refused}");
    let mut verdicts = Vec::new();
    publisher.take_verdicts(&mut verdicts);
    assert!(matches!(verdicts[..], [client::Verdict::Confirmed(run)] if run.count() == 1));
    server.await.unwrap();
}

#[tokio::test]
async fn asking_for_an_exchange_leaves_what_is_published_alone() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        assert_eq!(peer.next().await, Sent::Publish("a".into()));
        for is_there in [true, true, false, true] {
            let sent = peer.next().await;
            if sent == Sent::Method("channel.open") {
                peer.say_on(2, &Method::ChannelOpenOk(channel::OpenOk));
                peer.expect("exchange.declare").await;
            } else {
                assert_eq!(sent, Sent::Method("exchange.declare"));
            }
            if is_there {
                peer.say_on(2, &Method::ExchangeDeclareOk(amqp::exchange::DeclareOk));
            } else {
                // The confirm comes before the answer, and must not be lost for that.
                peer.ack(1, false);
                let reply_text = "NOT_FOUND - no exchange 'x' in vhost '/'";
                let close =
                    channel::Close { reply_code: 404, reply_text, class_id: 40, method_id: 10 };
                peer.say_on(2, &Method::ChannelClose(close));
                peer.expect("channel.close-ok").await;
            }
        }
        peer.goodbye().await;
    });
    let mut publisher = Publisher::open(&url, &options().without_retry(), 10).await.unwrap();
    let properties = amqp::Properties::default();
    publisher.publish(Address::queue("q"), &properties, b"a").await.unwrap();
    assert_eq!(publisher.has_exchange("").await, Ok(true), "nobody is asked for the default one");
    assert_eq!(publisher.has_exchange("x").await, Ok(true));
    assert_eq!(publisher.has_exchange("x").await, Ok(true));
    assert_eq!(publisher.has_exchange("x").await, Ok(false));
    assert_eq!(publisher.has_exchange("x").await, Ok(true));
    // The confirm is here already: no further byte comes.
    let mut verdicts = Vec::new();
    publisher.drive(&mut verdicts).await.unwrap();
    assert_eq!(verdicts.len(), 1);
    assert!(publisher.close().await.unwrap().is_clean());
    server.await.unwrap();
}
