//! Relays with a bug planted on purpose, as one would write them: the trials must catch each of them, and
//! must find nothing wrong with the one that has none.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio_postgres::{Client, Row};

use super::history::Id;
use crate::workload::Chance;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    None,
    /// Rows are marked before their messages are confirmed.
    MarksFirst,
    /// Reads on from the highest number it has seen.
    Cursor,
    /// A message-id for every attempt.
    NewIds,
    /// Publishes a batch in the order that it happens to have.
    Unordered,
    /// Marks what it has sent, confirmed or not.
    Unconfirmed,
}

impl Bug {
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::MarksFirst,
        Self::Cursor,
        Self::NewIds,
        Self::Unordered,
        Self::Unconfirmed,
    ];

    /// The promise that it breaks.
    pub fn breaks(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::MarksFirst | Self::Cursor | Self::Unconfirmed => Some("B1"),
            Self::Unordered => Some("B3"),
            Self::NewIds => Some("B4"),
        }
    }
}

/// A relay of this kind.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[arg(long)]
    bug: Bug,
    #[arg(long)]
    database: String,
    #[arg(long)]
    broker: SocketAddr,
    #[arg(long)]
    exchange: String,
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

const BATCH: i64 = 100;
const IDLE: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_millis(50);

/// Runs for ever.
///
/// # Errors
/// There is no runtime.
pub fn run(options: &Options) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        loop {
            // Whatever it was, it begins anew.
            let _ = session(options).await;
            tokio::time::sleep(RETRY).await;
        }
    })
}

async fn session(options: &Options) -> Result<(), Anything> {
    let mut client = crate::postgres::connect(&options.database).await?;
    let uri = format!("amqp://guest:guest@{}/%2f", options.broker);
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    if options.bug != Bug::Unconfirmed {
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
    }
    let mut chance = Chance::new(u64::from(std::process::id()));
    let mut last = 0;
    loop {
        if !connection.status().connected() {
            return Err("the broker is gone".into());
        }
        let rows = batch(&mut client, &channel, options, &mut chance, &mut last).await?;
        if rows == 0 {
            tokio::time::sleep(IDLE).await;
        }
    }
}

async fn batch(
    client: &mut Client,
    channel: &Channel,
    options: &Options,
    chance: &mut Chance,
    last: &mut i64,
) -> Result<usize, Anything> {
    let transaction = client.transaction().await?;
    let fetch = "SELECT id::text, type, content::text, headers::text, seq FROM outbox_messages
                 WHERE processed_on_utc IS NULL AND seq > $1 ORDER BY seq LIMIT $2
                 FOR UPDATE SKIP LOCKED";
    let mut rows = transaction.query(fetch, &[&*last, &BATCH]).await?;
    if options.bug == Bug::Cursor {
        *last = rows.last().map_or(*last, |row| row.get(4));
    }
    if options.bug == Bug::Unordered {
        rows.reverse();
    }
    let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let mark = "UPDATE outbox_messages SET processed_on_utc = now()
                WHERE id = ANY($1::text[]::uuid[])";
    if options.bug == Bug::MarksFirst {
        transaction.execute(mark, &[&ids]).await?;
        transaction.commit().await?;
        publish(channel, options, chance, &rows).await?;
    } else {
        publish(channel, options, chance, &rows).await?;
        transaction.execute(mark, &[&ids]).await?;
        transaction.commit().await?;
    }
    Ok(rows.len())
}

async fn publish(
    channel: &Channel,
    options: &Options,
    chance: &mut Chance,
    rows: &[Row],
) -> Result<(), Anything> {
    let mut unconfirmed = Vec::new();
    for row in rows {
        let (id, kind, headers): (String, String, String) = (row.get(0), row.get(1), row.get(3));
        let id = match options.bug {
            Bug::NewIds => Id(u128::from(chance.number())).to_string(),
            Bug::None | Bug::MarksFirst | Bug::Cursor | Bug::Unordered | Bug::Unconfirmed => id,
        };
        let number = headers.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
        let mut table = FieldTable::default();
        table.insert("row".into(), AMQPValue::LongLongInt(number));
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_type(kind.as_str().into())
            .with_delivery_mode(2)
            .with_headers(table);
        let (exchange, key) = (options.exchange.as_str().into(), kind.as_str().into());
        let body: &str = row.get(2);
        let how = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = channel.basic_publish(exchange, key, how, body.as_bytes(), properties).await?;
        unconfirmed.push(sent);
    }
    for sent in unconfirmed {
        let confirm = sent.await?;
        if options.bug != Bug::Unconfirmed && !confirm.is_ack() {
            return Err("the broker refuses".into());
        }
    }
    Ok(())
}
