//! Pages of messages: from where on, and of what is there the messages that are meant. A leader says what lies at a
//! position and behind it; a time, the end of a queue and a header are looked for here, within bounds.

use bytes::Bytes;
use cluster::limits::PEEKED_BYTES;
use cluster::{NotPeeked, PeekSpec, Peeked, PeekedMessage};
use machine::{GroupId, Position, QueueId, StreamOffset};
use tokio::time::Instant;

use super::api::Api;
use super::places;
use crate::begin::{Answer, Last, Question, Seen, Since, Untold};
use crate::limits::{PEEK_LOOKED_AT_MAX, PEEK_QUESTIONS_MAX, PEEK_WAIT, PEEKED_MESSAGES_MAX};
use crate::reply::Problem;
use crate::routes::peek::has_header;
use crate::work::{Begin, Peek};

/// What one request shows.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) messages: Vec<PeekedMessage>,
    /// Where to go on. `None`: there are no more.
    pub(super) next: Option<Position>,
    /// False: messages beside the place that a time led to do not say when they came. `None`: no time was asked for.
    pub(super) time_is_exact: Option<bool>,
}

/// What a request wants, and what it has taken.
struct Paging<'a> {
    api: &'a Api,
    wanted: &'a Peek,
    until: Instant,
    questions: u32,
    looked_at: usize,
    /// The priority in which the time was looked for last.
    priority: Option<u8>,
}

pub(super) async fn page(api: &Api, wanted: &Peek) -> Result<Page, Problem> {
    let until = Instant::now() + PEEK_WAIT;
    let mut paging = Paging { api, wanted, until, questions: 0, looked_at: 0, priority: None };
    let mut page = Page { messages: Vec::new(), next: Some(wanted.spec.from), time_is_exact: None };
    if wanted.begin == Begin::Last {
        page.next = paging.last().await?;
    }
    let mut is_first = true;
    while let Some(from) = page.next
        && (is_first || paging.goes_on(&page, from))
    {
        match paging.fill(&mut page, from).await {
            Ok(()) => {}
            Err(why) if is_first => return Err(why),
            // What was seen before is shown.
            Err(_) => break,
        }
        is_first = false;
    }
    Ok(page)
}

/// Why a leader shows nothing.
pub(super) fn problem(why: NotPeeked) -> Problem {
    let why = match why {
        NotPeeked::NoQueue => return Problem::NotFound,
        NotPeeked::NotYet { since } => format!(
            "another node leads the queue, and can be asked for its messages once all nodes have agreed on version \
             {since} of the cluster. Until then ask the node that leads it"
        ),
        NotPeeked::NoLeader => {
            "the queue's group has no leader: see millrace cluster status".to_owned()
        }
        NotPeeked::Late => "the queue's leader did not answer in time: ask again".to_owned(),
        NotPeeked::Busy => "too many look at messages of the queue's leader: ask again".to_owned(),
        NotPeeked::Unreadable => {
            "the disk of the queue's leader does not give these messages. The leader's log \
                                  names the file and says what to do"
                .to_owned()
        }
    };
    Problem::Unavailable(why)
}

impl Paging<'_> {
    fn has_budget(&self) -> bool {
        self.questions < PEEK_QUESTIONS_MAX
            && self.looked_at < PEEK_LOOKED_AT_MAX
            && Instant::now() < self.until
    }

    /// Whether another look belongs to this page: for messages with a header, or in the next priority for those of a time.
    fn goes_on(&self, page: &Page, from: Position) -> bool {
        let is_next_level = self.priority.is_some_and(|priority| from.priority < priority);
        let bytes: usize = page.messages.iter().map(|it| it.head.len() + it.body.len()).sum();
        (self.wanted.header.is_some() || is_next_level)
            && page.messages.len() < self.wanted.spec.count as usize
            && bytes < PEEKED_BYTES
            && self.has_budget()
    }

    /// One look more.
    async fn fill(&mut self, page: &mut Page, mut from: Position) -> Result<(), Problem> {
        if let Begin::Since { time_ms, stream } = self.wanted.begin
            && self.priority != Some(from.priority)
        {
            let search = self.since(from, time_ms, stream).await?;
            page.time_is_exact = Some(page.time_is_exact != Some(false) && search.is_exact());
            let Some(found) = search.found() else {
                page.next = None;
                return Ok(());
            };
            self.priority = Some(found.priority);
            from = found;
        }
        let room = (self.wanted.spec.count as usize).saturating_sub(page.messages.len());
        let Peeked { mut messages, mut next, .. } = self.look(from, room).await?;
        self.looked_at += messages.len();
        if let Some(priority) = self.priority
            && let Some(place) = messages.iter().position(|it| it.is.position.priority < priority)
        {
            // In the next priority the time is looked for again.
            next = messages.get(place).map(|message| message.is.position);
            messages.truncate(place);
        }
        if let Some(header) = &self.wanted.header {
            messages.retain(|message| has_header(&message.head, header));
        }
        if let Some(message) = messages.get(room) {
            next = Some(message.is.position);
            messages.truncate(room);
        }
        page.messages.extend(messages);
        page.next = next;
        Ok(())
    }

    async fn look(&mut self, from: Position, room: usize) -> Result<Peeked, Problem> {
        let mut spec = PeekSpec { from, ..self.wanted.spec.clone() };
        spec.count = u32::try_from(room).unwrap_or(u32::MAX);
        if let Some(header) = &self.wanted.header {
            spec.count = PEEKED_MESSAGES_MAX as u32;
            if spec.contains.is_empty() {
                // The leader leaves out messages in which there is not even the name.
                spec.contains = Bytes::copy_from_slice(header.name.as_bytes());
            }
        }
        self.questions += 1;
        self.api.0.cluster.peek(self.wanted.queue, spec).await.map_err(problem)
    }

    /// Where the messages of a time begin.
    async fn since(
        &mut self,
        mut from: Position,
        time_ms: u64,
        stream: Option<(GroupId, QueueId)>,
    ) -> Result<Since, Problem> {
        let mut untold = Untold::Older;
        if let Some(stream) = stream {
            let first = places::first(self.api, stream, StreamOffset::Since(time_ms)).await;
            let first = first.ok_or_else(|| problem(NotPeeked::Late))?;
            // A stream has one priority.
            let seq = if from.priority == 0 { from.seq.max(first) } else { first };
            (from, untold) = (Position { priority: 0, seq }, Untold::New);
        }
        let mut search = Since::new(from, time_ms, untold);
        while let Some(question) = search.question() {
            search.answered(&self.ask(question).await?);
        }
        Ok(search)
    }

    /// Where the last messages begin; of fewer than are wanted, if looking for them takes too long.
    async fn last(&mut self) -> Result<Option<Position>, Problem> {
        let mut search = Last::new(self.wanted.spec.count.into());
        while let Some(question) = search.question() {
            match self.ask(question).await {
                Ok(answer) => search.answered(&answer),
                Err(why) if search.found().is_none() => return Err(why),
                Err(_) => break,
            }
        }
        Ok(search.found())
    }

    /// What lies there, without bodies.
    async fn ask(&mut self, Question { mut from, count }: Question) -> Result<Answer, Problem> {
        while self.has_budget() {
            self.questions += 1;
            let (filter, count) = (self.wanted.spec.filter, count as u32);
            let spec = PeekSpec { from, filter, count, body_bytes_max: 0, contains: Bytes::new() };
            let peeked = self.api.0.cluster.peek(self.wanted.queue, spec).await.map_err(problem)?;
            let Peeked { messages, next, ends } = peeked;
            if messages.is_empty()
                && let Some(next) = next
            {
                // It was not seen yet what lies there.
                from = next;
                continue;
            }
            let seen = messages.iter().map(|message| Seen {
                position: message.is.position,
                enqueued_ms: message.enqueued_ms,
            });
            return Ok(Answer { seen: seen.collect(), next, ends });
        }
        Err(problem(NotPeeked::Late))
    }
}
