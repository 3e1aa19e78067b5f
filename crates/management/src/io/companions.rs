//! Asks the relays and workers that the configuration of each node names.

use std::sync::Arc;
use std::time::Duration;

use machine::Actor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::api::{Api, now_ms};
use super::asking;
use super::change::note;
use crate::audit;
use crate::companions::{Wish, ordered, read, shown};
use crate::limits::{COMPANION_BYTES_MAX, COMPANION_MS, COMPANION_ORDER_WAIT, COMPANION_WAIT};
use crate::neighbour::Question;
use crate::node::name_of;
use crate::page::Shape;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// Those of all nodes. A node that does not answer is left out.
pub(super) async fn companions(api: &Api, shape: &Shape) -> Result<Reply, Problem> {
    let (own, others) =
        tokio::join!(own(api), asking::ask_others::<Vec<Value>>(api, &Question::Companions));
    let told = others.into_iter().filter_map(|(_, told)| told.ok()).flatten();
    let all = own.iter().cloned().chain(told).collect();
    match Work::list(shape, all) {
        Work::Answer(reply) => Ok(reply),
        _ => Err(Problem::NotFound),
    }
}

/// Those of this node, asked a second ago at most. Who asks at the same time waits for the same answers.
pub(super) async fn own(api: &Api) -> Arc<Vec<Value>> {
    let companions = &api.0.companions;
    let Some(addresses) = companions.addresses.get() else { return Arc::default() };
    let mut last = companions.last.lock().await;
    if let Some((at_ms, told)) = &*last
        && now_ms().abs_diff(*at_ms) < COMPANION_MS
    {
        return Arc::clone(told);
    }
    let mut asking = JoinSet::new();
    for (index, address) in addresses.iter().cloned().enumerate() {
        let node = name_of(api.0.cluster.node());
        asking.spawn(async move {
            let told = ask(&address, "GET /status", "", COMPANION_WAIT).await;
            let told = told.and_then(|answer| read(&answer));
            (index, shown(&node, &address, now_ms(), told))
        });
    }
    let mut told = asking.join_all().await;
    told.sort_by_key(|(index, _)| *index);
    let told: Arc<Vec<Value>> = Arc::new(told.into_iter().map(|(_, shown)| shown).collect());
    *last = Some((now_ms(), Arc::clone(&told)));
    told
}

/// Has a relay, a worker or a pipeline of one rest, or go on.
pub(super) async fn order(api: &Api, by: &Actor, wish: &Wish) -> Result<Reply, Problem> {
    let address = &wish.address;
    let companions = &api.0.companions;
    let known = companions.addresses.get().into_iter().flatten();
    if !known.into_iter().any(|known| known == address) {
        return Err(Problem::NotFound);
    }
    let Some(secret) = companions.secret.get() else {
        let why = "this node has no companions_secret_file: relays take no orders from it";
        return Err(Problem::bad(why));
    };
    let line = wish.line(&by.user);
    let login = format!("authorization: Bearer {secret}\r\n");
    let answer = ask(address, &line, &login, COMPANION_ORDER_WAIT).await;
    // What is shown is not to be what was.
    *companions.last.lock().await = None;
    let answer = answer.map_err(|why| Problem::Unavailable(format!("{address} {why}")))?;
    let is_resting = ordered(&answer).map_err(|why| Problem::Bad(format!("{address} {why}")))?;
    note(api, by, audit::of_companion(wish)).await;
    Ok(Reply::of(json!({ "is_paused": is_resting })))
}

/// All that it answers, unless that takes long or is long.
async fn ask(address: &str, line: &str, headers: &str, wait: Duration) -> Result<Vec<u8>, String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("{line} HTTP/1.0\r\nhost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(COMPANION_BYTES_MAX + 1).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match tokio::time::timeout(wait, asked).await {
        Err(_) => Err("did not answer in time".to_owned()),
        Ok(Err(why)) => Err(format!("does not answer: {why}")),
        Ok(Ok(answer)) if answer.len() as u64 > COMPANION_BYTES_MAX => {
            Err(format!("answers with more than {COMPANION_BYTES_MAX} bytes"))
        }
        Ok(Ok(answer)) => Ok(answer),
    }
}
