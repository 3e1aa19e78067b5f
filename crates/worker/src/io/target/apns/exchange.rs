//! Sends one push once, and reads its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::uri::{Parts, Scheme, Uri};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use tokio::sync::oneshot;

use super::shared::{Asked, Granted, Shared};
use crate::target::apns::answer::{Verdict, judge, retry_after};
use crate::target::apns::connections::{Ending, Place, Ticket};
use crate::target::apns::request::Push;

/// More of an answer's body is not read.
const ANSWER_BYTES_MAX: usize = 4096;

/// How sending a push once ended.
pub(super) enum Exchange {
    Answered(Verdict),
    /// APNs certainly did not take it.
    NotTaken {
        why: String,
    },
    /// It may have been taken.
    Unknown {
        why: String,
    },
    NoConnection {
        after: Duration,
        why: String,
    },
}

/// Sends a push over one connection, once. Takes its headers.
pub(super) async fn exchange(
    shared: &Arc<Shared>,
    push: &mut Push,
    authorization: Option<HeaderValue>,
) -> Exchange {
    let mut request = Some(request(shared, push, authorization));
    let (place, response) = match shared.ask(push.token_hash, &mut request, &push.payload) {
        Asked::Sent(place, response) => (place, response),
        Asked::Waits(ticket, granted) => {
            let granted = Waiting { shared, ticket, granted: Some(granted) }.granted().await;
            match granted {
                Granted::Place(place) => (place, shared.send(place, &mut request, &push.payload)),
                Granted::Refused { after, why } => return Exchange::NoConnection { after, why },
            }
        }
    };
    let mut flight = Flight { shared, place: Some(place), token_hash: push.token_hash };
    let answered = match response {
        Ok(response) => answer(response).await,
        Err(error) => Err(Exchange::NotTaken { why: words(&error) }),
    };
    match answered {
        Ok(verdict) => {
            flight.ended(ending(&verdict));
            if matches!(verdict, Verdict::OtherConnection { .. }) {
                shared.going_away(place);
            }
            Exchange::Answered(verdict)
        }
        Err(exchange) => exchange,
    }
}

fn request(shared: &Shared, push: &mut Push, authorization: Option<HeaderValue>) -> Request<()> {
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(shared.connector.authority().clone());
    parts.path_and_query = Some(push.path.clone());
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_parts(parts).expect("all three parts are there");
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = std::mem::take(&mut push.headers);
    if let Some(authorization) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
    }
    request
}

async fn answer(response: ResponseFuture) -> Result<Verdict, Exchange> {
    let response = response.await.map_err(judge_error)?;
    if response.status() == StatusCode::OK {
        return Ok(Verdict::Accepted);
    }
    let (head, stream): (http::response::Parts, RecvStream) = Response::into_parts(response);
    let body = body(stream).await;
    let after = retry_after(head.headers.get(header::RETRY_AFTER));
    Ok(judge(head.status.as_u16(), after, &body))
}

/// The body, or as much of it as came: the status alone says enough.
async fn body(mut stream: RecvStream) -> Bytes {
    let mut body = Vec::new();
    while let Some(Ok(part)) = stream.data().await {
        let _ = stream.flow_control().release_capacity(part.len());
        body.extend_from_slice(&part);
        if body.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    Bytes::from(body)
}

/// A stream that APNs's GOAWAY or a refusal leaves out was not looked at. Of all others nobody knows.
fn judge_error(error: h2::Error) -> Exchange {
    let is_left_out = error.is_go_away() && error.is_remote();
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let why = words(&error);
    if is_left_out || is_refused { Exchange::NotTaken { why } } else { Exchange::Unknown { why } }
}

/// Without what the peer may have put into a GOAWAY frame.
fn words(error: &h2::Error) -> String {
    match (error.reason(), error.get_io()) {
        (Some(reason), _) if error.is_go_away() => format!("APNs closes the connection ({reason})"),
        (Some(reason), _) => format!("the request was reset ({reason})"),
        (None, Some(error)) => format!("the connection broke ({error})"),
        (None, None) => "the connection broke".to_owned(),
    }
}

fn ending(verdict: &Verdict) -> Ending {
    match verdict {
        Verdict::Accepted => Ending::Accepted,
        Verdict::TokenDead { .. } => Ending::TokenRefused,
        Verdict::Retry { .. }
        | Verdict::OtherConnection { .. }
        | Verdict::Reject { .. }
        | Verdict::TokenExpired
        | Verdict::TokenTooNew
        | Verdict::Config { .. } => Ending::Answered,
    }
}

/// A push that waits for a connection. Dropped: it does not wait any more.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
    granted: Option<oneshot::Receiver<Granted>>,
}

impl Waiting<'_> {
    async fn granted(mut self) -> Granted {
        let receiver = self.granted.as_mut().expect("it was not answered yet");
        let granted = receiver.await;
        self.granted = None;
        granted.unwrap_or_else(|_| Granted::Refused {
            after: Duration::ZERO,
            why: "the target is stopped".to_owned(),
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(granted) = &mut self.granted {
            self.shared.withdraw(self.ticket, granted);
        }
    }
}

/// A push on a connection. Dropped: it ended without an answer.
struct Flight<'a> {
    shared: &'a Arc<Shared>,
    place: Option<Place>,
    token_hash: u64,
}

impl Flight<'_> {
    fn ended(&mut self, ending: Ending) {
        if let Some(place) = self.place.take() {
            self.shared.finished(place, ending, self.token_hash);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.ended(Ending::Unanswered);
    }
}
