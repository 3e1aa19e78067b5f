//! `millrace publish`: messages from the command line, a file or standard input, confirmed.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command reads files and talks to its user"
)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use client::{Address, Connection, Options, Publisher, QueueSpec, Settled, Url};
use tokio::sync::mpsc;

use super::url::UrlParser;

/// Largest message that is read, in bytes.
const BODY_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Lines read ahead of the publisher.
const LINES_AHEAD: usize = 1024;

const EXAMPLES: &str = "\
Examples:
  echo hello | millrace publish --queue greetings      one line, one message; declares the queue
  millrace publish --queue greetings --body hello
  millrace publish --queue files --whole --file report.pdf --content-type application/pdf
  seq 1000000 | millrace publish --queue numbers       a million messages, all confirmed
  millrace publish --exchange events --routing-key user.created --header tenant=7 --body '{}'

Every message is persistent unless --transient, and is confirmed: when the command ends with exit code
0, the server has taken responsibility for all of them. A message that no queue gets is returned, and
makes the exit code 1 unless --allow-unroutable.";

/// Publish messages: lines of standard input, a file, or --body
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The broker: amqp://user:password@host:port/vhost
    #[arg(
        long,
        env = "AMQP_URL",
        hide_env_values = true,
        value_parser = UrlParser,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: Url,
    /// Publish to this queue; it is declared durable if it is not there
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["exchange", "routing_key"])]
    queue: Option<String>,
    /// Use the queue as it is
    #[arg(long, requires = "queue")]
    no_declare: bool,
    /// Publish to this exchange
    #[arg(long, short, value_name = "NAME", required_unless_present_any = ["queue", "routing_key"])]
    exchange: Option<String>,
    /// Routing key
    #[arg(long, short = 'k', value_name = "KEY", default_value = "", hide_default_value = true)]
    routing_key: String,
    /// The message
    #[arg(long, short, value_name = "TEXT", conflicts_with = "file")]
    body: Option<String>,
    /// Read this file instead of standard input
    #[arg(long, short, value_name = "PATH")]
    file: Option<PathBuf>,
    /// All of the input is one message, not each of its lines
    #[arg(long, short)]
    whole: bool,
    /// Let the server forget messages when it restarts
    #[arg(long)]
    transient: bool,
    /// A message that no queue gets is no failure
    #[arg(long)]
    allow_unroutable: bool,
    /// Property content-type, such as application/json
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Property message-id
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Property correlation-id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Property reply-to
    #[arg(long, value_name = "QUEUE")]
    reply_to: Option<String>,
    /// Property priority, 0 to 255
    #[arg(long)]
    priority: Option<u8>,
    /// Property expiration: milliseconds the message may wait in its queue
    #[arg(long, value_name = "MS")]
    expiration: Option<u64>,
    /// A header, as text (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Unconfirmed messages at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    window: u32,
    /// Say nothing if all went well
    #[arg(long)]
    quiet: bool,
}

/// Publishes everything; the exit code says whether all of it was taken.
pub(crate) fn run(args: Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(publish(&args)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("millrace publish: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn publish(args: &Args) -> Result<(), String> {
    let options = Options::named("millrace publish");
    let plain = |error: client::Error| error.to_string();
    // Without another attempt: a wrong address or login is told at once. Later losses are waited out.
    let mut connection =
        Connection::open(&args.url, &options.clone().without_retry()).await.map_err(plain)?;
    if let (Some(queue), false) = (&args.queue, args.no_declare) {
        connection.declare_queue(&QueueSpec::durable(queue)).await.map_err(plain)?;
    }
    connection.close().await.map_err(plain)?;
    let mut publisher = Publisher::open(&args.url, &options, args.window).await.map_err(plain)?;
    let headers: FieldTable = args
        .header
        .iter()
        .map(|(key, value)| (key.as_str(), FieldValue::LongStr(value.as_bytes().to_vec())))
        .collect();
    let headers = headers.to_bytes();
    let expiration = args.expiration.map(|ms| ms.to_string());
    let properties = Properties {
        content_type: args.content_type.as_deref(),
        headers: match args.header.is_empty() {
            true => None,
            false => Some(TableRef::validate(&headers).map_err(|error| error.to_string())?),
        },
        delivery_mode: Some(if args.transient { 1 } else { 2 }),
        priority: args.priority,
        correlation_id: args.correlation_id.as_deref(),
        reply_to: args.reply_to.as_deref(),
        expiration: expiration.as_deref(),
        message_id: args.message_id.as_deref(),
        ..Properties::default()
    };
    let to = Address {
        exchange: args.exchange.as_deref().unwrap_or(""),
        routing_key: args.queue.as_deref().unwrap_or(&args.routing_key),
        mandatory: !args.allow_unroutable,
    };
    let start = Instant::now();
    let settled = publish_all(args, &mut publisher, to, &properties).await?;
    let seconds = start.elapsed().as_secs_f64();
    publisher.close().await.map_err(plain)?;
    tell(args, &settled, seconds)
}

async fn publish_all(
    args: &Args,
    publisher: &mut Publisher,
    to: Address<'_>,
    properties: &Properties<'_>,
) -> Result<Settled, String> {
    let plain = |error: client::Error| error.to_string();
    let mut settled = Settled::default();
    if let Some(body) = &args.body {
        publisher.publish(to, properties, body.as_bytes()).await.map_err(plain)?;
    } else {
        let mut bodies = read_bodies(args)?;
        let mut verdicts = Vec::new();
        loop {
            // What was published goes out before the next line is waited for.
            let body = match bodies.try_recv() {
                Ok(body) => body,
                Err(_) => tokio::select! {
                    body = bodies.recv() => match body {
                        Some(body) => body,
                        None => break,
                    },
                    driven = publisher.drive(&mut verdicts) => {
                        driven.map_err(plain)?;
                        settled.add(verdicts.drain(..));
                        continue;
                    }
                },
            };
            publisher.publish(to, properties, &body?).await.map_err(plain)?;
            publisher.take_verdicts(&mut verdicts);
            settled.add(verdicts.drain(..));
        }
    }
    let rest = publisher.settle_all().await.map_err(plain)?;
    settled.confirmed += rest.confirmed;
    settled.refused += rest.refused;
    settled.returned += rest.returned;
    settled.reason = settled.reason.or(rest.reason);
    Ok(settled)
}

/// Reads bodies in a thread of its own: standard input cannot be waited for beside a socket.
fn read_bodies(args: &Args) -> Result<mpsc::Receiver<Result<Vec<u8>, String>>, String> {
    let input: Box<dyn Read + Send> = match &args.file {
        None => Box::new(std::io::stdin()),
        Some(path) => {
            let file = std::fs::File::open(path);
            Box::new(file.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let whole = args.whole;
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut input = BufReader::with_capacity(256 * 1024, input);
        // It ends with the input, or when the publisher has given up.
        while let Some(body) = next_body(&mut input, whole).transpose() {
            let is_last = whole || body.is_err();
            if sender.blocking_send(body).is_err() || is_last {
                return;
            }
        }
    });
    Ok(receiver)
}

/// The next message: a line without its end, or all there is. None: the input has ended.
fn next_body(input: &mut impl BufRead, whole: bool) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    let mut limited = input.take(BODY_BYTES_MAX + 1);
    let read =
        if whole { limited.read_to_end(&mut body) } else { limited.read_until(b'\n', &mut body) };
    let count = read.map_err(|error| format!("the input cannot be read: {error}"))?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(format!("a message is longer than {BODY_BYTES_MAX} bytes"));
    }
    if count == 0 && !whole {
        return Ok(None);
    }
    if !whole && body.last() == Some(&b'\n') {
        body.pop();
        if body.last() == Some(&b'\r') {
            body.pop();
        }
    }
    Ok(Some(body))
}

fn tell(args: &Args, settled: &Settled, seconds: f64) -> Result<(), String> {
    let Settled { confirmed, refused, returned, reason } = settled;
    if !args.quiet {
        let rate = *confirmed as f64 / seconds.max(1e-6);
        eprintln!("{confirmed} messages confirmed in {seconds:.3} s, {rate:.0} per second");
    }
    if *refused > 0 {
        return Err(format!("{refused} messages were refused by the server (basic.nack)"));
    }
    if *returned > 0 {
        let reason = reason.as_deref().unwrap_or("no reason given");
        return Err(format!("{returned} messages came back, no queue was found: {reason}"));
    }
    Ok(())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a header reads KEY=VALUE")?;
    if key.is_empty() || key.len() > client::limits::SHORT_STRING_BYTES_MAX {
        return Err("a header's name has 1 to 255 bytes".into());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(mut input: &[u8], whole: bool) -> Vec<String> {
        let mut bodies = Vec::new();
        while let Some(body) = next_body(&mut input, whole).expect("it can be read") {
            bodies.push(String::from_utf8(body).expect("it is text"));
            if whole {
                break;
            }
        }
        bodies
    }

    #[test]
    fn every_line_is_a_message_with_or_without_a_last_line_end() {
        assert_eq!(bodies(b"a\nb\r\n\nc", false), ["a", "b", "", "c"]);
        assert_eq!(bodies(b"a\n", false), ["a"]);
        assert!(bodies(b"", false).is_empty());
    }

    #[test]
    fn the_whole_input_is_one_message_with_its_line_ends() {
        assert_eq!(bodies(b"a\nb\n", true), ["a\nb\n"]);
        assert_eq!(bodies(b"", true), [""]);
    }

    #[test]
    fn a_header_is_split_at_its_first_equals_sign() {
        assert_eq!(header("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(header("a").is_err());
        assert!(header("=b").is_err());
    }
}
