//! The source tasks of a worker, and what they tell.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::io::source::{Link, News, Order, Source};

use super::STEP_MAX;

/// News of one source that may wait for the worker.
const NEWS_MAX: usize = 64;

/// What happens to a source.
pub(super) enum Event {
    News(usize, Vec<News>),
    /// It has ended: closed, or unable to go on.
    Ended(usize, Result<(), Error>),
}

/// All of them.
#[derive(Default)]
pub(super) struct Sources {
    news: Vec<Option<mpsc::Receiver<News>>>,
    tasks: JoinSet<(usize, Result<(), Error>)>,
    /// Which one is asked first: each in turn.
    next: usize,
    broken: usize,
}

impl Sources {
    /// Starts the source of the pipeline at this place.
    pub(super) fn begin(
        &mut self,
        at: usize,
        source: Box<dyn Source>,
    ) -> mpsc::UnboundedSender<Order> {
        // Bounded by the jobs in hand: each is settled once, and room is given for what was settled.
        let (orders, taken) = mpsc::unbounded_channel();
        let (tell, news) = mpsc::channel(NEWS_MAX);
        self.tasks.spawn(async move {
            let link = Link { orders: taken, news: tell };
            // In a task of its own, so that its panic has its place.
            let ended = tokio::spawn(source.run(link)).await;
            (at, ended.unwrap_or_else(|error| Err(Error::setup(format!("our bug: {error}")))))
        });
        if self.news.len() <= at {
            self.news.resize_with(at + 1, || None);
        }
        self.news[at] = Some(news);
        orders
    }

    /// What happens next. The news of a source come before its end.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let count = self.news.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let Some(news) = &mut self.news[at] else { continue };
            let mut list = Vec::new();
            match news.poll_recv_many(cx, &mut list, STEP_MAX) {
                Poll::Pending => (),
                // Its task has ended, or is about to.
                Poll::Ready(0) => self.news[at] = None,
                Poll::Ready(_) => {
                    self.next = at + 1;
                    return Poll::Ready(Event::News(at, list));
                }
            }
        }
        match self.tasks.poll_join_next(cx) {
            Poll::Ready(Some(Ok((at, ended)))) => {
                self.broken += usize::from(ended.is_err());
                Poll::Ready(Event::Ended(at, ended))
            }
            // Nobody aborts these tasks, and what may panic in them is caught. None is left: no event comes.
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Those that run.
    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Those that could not go on.
    pub(super) fn broken(&self) -> usize {
        self.broken
    }
}
