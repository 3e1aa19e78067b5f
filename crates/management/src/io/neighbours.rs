//! Answers to the questions of other nodes, and what nodes count together.

use std::pin::pin;

use broker::population::Census;
use cluster::Question as Asked;
use cluster::shard::WantedLine;
use tokio::task::JoinSet;

use super::api::Api;
use super::seen::look_always;
pub(super) use super::standing::standing;
use super::{
    asking, backup, books, disk, exchanges, fronts, groups, history, live, locks, model, places,
    problems, retries,
};
use super::{companions, connections};
use crate::limits::{CENSUS_EVERY, NEIGHBOURS_AT_ONCE};
use crate::lines::Wanted;
use crate::neighbour::{Question, ToldCensus};

/// Answers other nodes, counts with them what limits are about, looks at what the node leads, asks for fronts of queues and
/// tells live streams, until it is dropped. Call it once.
pub async fn answer(api: Api) {
    let Some(mut questions) = api.0.cluster.questions() else {
        tokio::join!(look_always(&api, false), fronts::ask_always(&api), live::tick_always(&api));
        return;
    };
    let mut answering = JoinSet::new();
    let mut counting = pin!(count_always(&api));
    let mut looking = pin!(look_always(&api, true));
    let mut streaming = pin!(live::tick_always(&api));
    let mut asking = pin!(fronts::ask_always(&api));
    loop {
        tokio::select! {
            Some(asked) = questions.recv(), if answering.len() < NEIGHBOURS_AT_ONCE => {
                let api = api.clone();
                answering.spawn(async move { answer_one(&api, asked).await });
            }
            Some(_) = answering.join_next() => {}
            () = &mut counting => {}
            () = &mut looking => {}
            () = &mut streaming => {}
            () = &mut asking => {}
        }
    }
}

/// Never ends.
async fn count_always(api: &Api) {
    let mut census = tokio::time::interval(CENSUS_EVERY);
    census.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        census.tick().await;
        backup::forget_idle(api);
        count_together(api).await;
    }
}

/// What is not understood is refused, by being dropped.
async fn answer_one(api: &Api, asked: Asked) {
    let Ok(question) = serde_json::from_slice::<Question>(&asked.body) else { return };
    let answer = match question {
        Question::Connections { what, user, vhost } => {
            let wanted = Wanted { what, user, vhost };
            let told = connections::told(api, &api.facts(), &wanted).await;
            told.and_then(|told| asking::encoded(&told))
        }
        Question::Places { of, to } => asking::encoded(&places::own(api, of, to).await),
        Question::Companions => asking::encoded(&*companions::own(api).await),
        Question::Exchanges => asking::encoded(&exchanges::own(api)),
        Question::LockLine { group, vhost, name } => {
            let group = machine::GroupId(group);
            asking::encoded(&locks::own_line(api, WantedLine { group, vhost, name }).await)
        }
        Question::Groups => asking::encoded(&groups::own(api).await),
        Question::Disk => asking::encoded(&disk::own(api).await),
        Question::Standing => asking::encoded(&standing(api)),
        Question::Survey => asking::encoded(&model::own_rows(api).await),
        Question::Fronts => asking::encoded(&fronts::own(api).await),
        Question::History { window, wants_node, queues } => {
            asking::encoded(&history::own(api, window, wants_node, &queues).await)
        }
        Question::Marks { from_ms, until_ms } => {
            asking::encoded(&history::own_marks(api, from_ms, until_ms).await)
        }
        Question::Books => asking::encoded(&books::own(api).await),
        Question::Problems => asking::encoded(&problems::own(api).await),
        Question::Holders { of, messages } => {
            asking::encoded(&connections::holders(api, &api.facts(), &of, &messages).await)
        }
        Question::Retries { what, vhosts } => {
            asking::encoded(&retries::of_this_node(api, &what, &vhosts))
        }
        Question::Census => asking::encoded(&ToldCensus::from(api.0.broker.census())),
        Question::HoldDeadLetters { backup, ms } => {
            let time = std::time::Duration::from_millis(ms);
            asking::encoded(&api.0.cluster.hold_dead_letters(backup, time))
        }
        Question::ReleaseDeadLetters { backup } => {
            api.0.cluster.release_dead_letters(backup);
            asking::encoded(&true)
        }
        Question::Cut { backup, groups } => {
            asking::encoded(&backup::cut_here(api, backup, &groups).await)
        }
        Question::BackupPart { backup, group, offset } => {
            asking::encoded(&backup::part_here(api, backup, group, offset).await)
        }
        Question::KeepBackup { backup } => {
            backup::keep_here(api, backup);
            asking::encoded(&true)
        }
        Question::EndBackup { backup } => {
            backup::end_here(api, backup);
            asking::encoded(&true)
        }
    };
    if let Some(answer) = answer {
        asked.reply.send(answer).await;
    }
}

/// Asks the other nodes how many connections and channels they have, if there is a limit that needs it. A node that is
/// out of reach counts for nothing: its clients go elsewhere.
async fn count_together(api: &Api) {
    let is_limited = {
        let catalog = api.0.cluster.catalog();
        let of_users = catalog.users().any(|user| user.limits != Default::default());
        of_users || catalog.vhosts().any(|vhost| vhost.limits.max_connections.is_some())
    };
    let told = match is_limited {
        true => asking::ask_others::<ToldCensus>(api, &Question::Census).await,
        false => Vec::new(),
    };
    let told = told.into_iter().filter_map(|(node, told)| Some((node, Census::from(told.ok()?))));
    api.0.broker.told_census(told.collect());
}
