//! Who wants to see what passes through a session: the exchange of traces of a traced vhost, and the collector of
//! OpenTelemetry. A session asks once a step whether anybody does (`Step::is_tapped`), and comes here only then.

use machine::QueueId;

use crate::channel::caller::Caller;
use crate::passing::Passing;
use crate::route_cache::Route;
use crate::spans::Given;
use crate::trace;

/// A client published, and its message goes there. `run`: its confirm waits for that run of its channel.
#[cold]
pub(crate) fn published(
    caller: &mut Caller<'_, '_>,
    route: &Route,
    run: Option<u64>,
    passing: Passing<'_>,
) {
    if caller.catalog().traces(&caller.client.vhost) {
        trace::published(caller, route, passing);
    }
    if let Some(spans) = caller.spans {
        let (now, vhost) = (caller.step.now, &caller.client.vhost);
        spans.published(now, (caller.at, run), vhost, passing, &mut caller.step.out.spans);
    }
}

/// How a client is given a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// By `basic.get`.
    pub(crate) is_asked: bool,
    pub(crate) queue: QueueId,
    pub(crate) tag: u64,
    pub(crate) no_ack: bool,
    pub(crate) redelivered: bool,
}

/// A client is given a message.
#[cold]
pub(crate) fn handed(caller: &mut Caller<'_, '_>, handed: Handed, passing: Passing<'_>) {
    let Handed { is_asked, queue, tag, no_ack, redelivered } = handed;
    if caller.catalog().traces(&caller.client.vhost) {
        trace::delivered(caller, queue, redelivered, passing);
    }
    let catalog = caller.catalog();
    if let Some(spans) = caller.spans {
        let queue = trace::name_of(catalog, queue).unwrap_or_default();
        let given = Given { is_asked, queue, tag, no_ack, redelivered };
        let (now, vhost) = (caller.step.now, &caller.client.vhost);
        spans.given(now, caller.at, vhost, given, passing, &mut caller.step.out.spans);
    }
}
