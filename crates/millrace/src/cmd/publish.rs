//! `millrace publish`: messages from the command line, a file or standard input, confirmed.
#![allow(clippy::disallowed_methods, reason = "a command reads files and talks to its user")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use client::{Address, Connection, Options, Publisher, QueueSpec, Settled, Url, Verdict};
use tokio::sync::mpsc;

use super::terminal;
use super::url::UrlParser;

/// Largest message that is read, in bytes.
const BODY_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long the server may take to answer a goodbye.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Between two attempts to reach a server at the start.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Lines read ahead of the publisher.
const LINES_AHEAD: usize = 1024;

const EXAMPLES: &str = "\
Examples:
  echo hello | millrace publish --queue greetings      one line, one message; declares the queue
  millrace publish --queue greetings --body hello
  millrace publish --queue files --whole --file report.pdf --content-type application/pdf
  seq 1000000 | millrace publish --queue numbers       a million messages, all confirmed
  millrace publish --exchange events --routing-key user.created --header tenant=7 --body '{}'
  millrace publish --url 'amqps://app:secret@broker.example?cacertfile=ca.pem' --queue greetings --body hello

Every message is persistent unless you pass --transient. The command waits for every confirm: exit code 0 means that
the server has taken responsibility for all messages. A message that reaches no queue is returned, and makes the exit
code 1 unless you pass --allow-unroutable.

After a lost connection the command reconnects and sends every unconfirmed message again, so the server may store such
a message twice. The last line says how many were sent again; --fail-on-repeats turns that into exit code 3. The
command gives up, with exit code 1 and the counts, when the server is gone, blocks publishers or is silent for longer
than --give-up-after.";

/// All was confirmed, but something may be stored twice, and that was not to be.
const EXIT_REPEATED: u8 = 3;

/// Publish messages: lines of standard input, a file, or --body
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The broker: amqp://user:password@host:port/vhost, or amqps:// for TLS (?cacertfile=ca.pem)
    #[arg(
        long,
        env = "AMQP_URL",
        hide_env_values = true,
        value_parser = UrlParser,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: Url,
    /// Publish to this queue; the command declares it, durable, if it is missing
    #[arg(long, short, value_name = "NAME", conflicts_with_all = ["exchange", "routing_key"])]
    queue: Option<String>,
    /// Do not declare the queue
    #[arg(long, requires = "queue")]
    no_declare: bool,
    /// Publish to this exchange
    #[arg(long, short, value_name = "NAME", required_unless_present_any = ["queue", "routing_key"])]
    exchange: Option<String>,
    /// Routing key of every message
    #[arg(long, short = 'k', value_name = "KEY", default_value = "", hide_default_value = true)]
    routing_key: String,
    /// Publish this text as one message
    #[arg(long, short, value_name = "TEXT", conflicts_with = "file")]
    body: Option<String>,
    /// Read this file instead of standard input
    #[arg(long, short, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Publish the whole input as one message instead of one message per line
    #[arg(long, short)]
    whole: bool,
    /// Publish transient messages, which the server may lose when it restarts
    #[arg(long)]
    transient: bool,
    /// Do not fail if a message reaches no queue
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
    /// Property expiration: milliseconds that the message may wait in its queue
    #[arg(long, value_name = "MS")]
    expiration: Option<u64>,
    /// Add a header, as text (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Maximum number of unconfirmed messages
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    window: u32,
    /// Give up when the server has confirmed nothing for this time (60s, 500ms)
    #[arg(long, value_name = "TIME", value_parser = super::bench::duration, default_value = "60s")]
    give_up_after: Duration,
    /// At the start, wait this long for a server that cannot be reached
    #[arg(long, value_name = "TIME", value_parser = super::bench::duration, default_value = "0s")]
    wait_for_server: Duration,
    /// Exit with code 3 if messages were sent again and may be stored twice
    #[arg(long)]
    fail_on_repeats: bool,
    /// Print nothing if all went well
    #[arg(long)]
    quiet: bool,
}

/// Publishes everything; the exit code says whether all of it was taken.
pub(crate) fn run(args: Args) -> ExitCode {
    // The client says when a connection is lost, and when the server blocks publishers.
    super::log::begin("warn", super::log::LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(publish(&args)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match result {
        Ok(code) => code,
        Err(why) => {
            terminal::remark(&format!("millrace publish: {why}"));
            ExitCode::FAILURE
        }
    }
}

async fn publish(args: &Args) -> Result<ExitCode, String> {
    let options = Options { retry_for: args.give_up_after, ..Options::named("millrace publish") };
    let plain = |error: client::Error| error.to_string();
    let mut connection = first_connection(args, &options).await.map_err(plain)?;
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
    let mut settled = Settled::default();
    if let Err(why) = publish_all(args, &mut publisher, to, &properties, &mut settled).await {
        let Settled { confirmed, refused, returned, .. } = settled;
        return Err(format!(
            "{why}\n{confirmed} messages were confirmed, {refused} were refused, {returned} were returned; {} have \
             no answer and may have arrived. Later messages were not sent",
            publisher.unconfirmed()
        ));
    }
    let seconds = start.elapsed().as_secs_f64();
    let repeated = publisher.repeated();
    // All is confirmed: that the server is gone by now is no matter.
    let _ = tokio::time::timeout(CLOSE_WAIT, publisher.close()).await;
    tell(args, &settled, seconds, repeated)
}

/// A wrong address or login is told at once, unless the server is to be waited for. Later losses are waited out.
async fn first_connection(args: &Args, options: &Options) -> Result<Connection, client::Error> {
    let once = options.clone().without_retry();
    let begun = Instant::now();
    loop {
        match Connection::open(&args.url, &once).await {
            Err(error) if error.is_temporary() && begun.elapsed() < args.wait_for_server => {
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Publishes all of the input; `settled` says how far it came, whatever ends it.
async fn publish_all(
    args: &Args,
    publisher: &mut Publisher,
    to: Address<'_>,
    properties: &Properties<'_>,
    settled: &mut Settled,
) -> Result<(), String> {
    let mut verdicts = Vec::new();
    let mut since = Instant::now();
    if let Some(body) = &args.body {
        within(args, &mut since, publisher, async |publisher| {
            publisher.publish(to, properties, body.as_bytes()).await.map(drop)
        })
        .await?;
    } else {
        let mut bodies = read_bodies(args)?;
        loop {
            // What was published goes out before the next line is waited for.
            let body = match bodies.try_recv() {
                Ok(body) => body,
                Err(_) => tokio::select! {
                    body = bodies.recv() => match body {
                        Some(body) => body,
                        None => break,
                    },
                    driven = drive(args, &mut since, publisher, &mut verdicts) => {
                        driven?;
                        settled.add(verdicts.drain(..));
                        continue;
                    }
                },
            };
            let body = body?;
            let published = within(args, &mut since, publisher, async |publisher| {
                publisher.publish(to, properties, &body).await.map(drop)
            })
            .await;
            publisher.take_verdicts(&mut verdicts);
            if !verdicts.is_empty() {
                since = Instant::now();
            }
            settled.add(verdicts.drain(..));
            published?;
        }
    }
    while publisher.unconfirmed() > 0 {
        drive(args, &mut since, publisher, &mut verdicts).await?;
        settled.add(verdicts.drain(..));
    }
    publisher.take_verdicts(&mut verdicts);
    settled.add(verdicts.drain(..));
    Ok(())
}

/// Waits for verdicts: for ever, if none is to come.
async fn drive(
    args: &Args,
    since: &mut Instant,
    publisher: &mut Publisher,
    verdicts: &mut Vec<Verdict>,
) -> Result<(), String> {
    if publisher.unconfirmed() == 0 {
        return publisher.drive(verdicts).await.map_err(|error| error.to_string());
    }
    within(args, since, publisher, async |publisher| publisher.drive(verdicts).await).await?;
    *since = Instant::now();
    Ok(())
}

/// Does `step`, but not longer than the server may confirm nothing, which it has not done `since` then.
async fn within(
    args: &Args,
    since: &mut Instant,
    publisher: &mut Publisher,
    step: impl AsyncFnOnce(&mut Publisher) -> Result<(), client::Error>,
) -> Result<(), String> {
    // Where nothing was asked, nothing was to be answered.
    if publisher.unconfirmed() == 0 {
        *since = Instant::now();
    }
    let limit = args.give_up_after.saturating_sub(since.elapsed());
    let done = tokio::time::timeout(limit, step(publisher)).await;
    match done {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(silence(args, publisher)),
    }
}

fn silence(args: &Args, publisher: &Publisher) -> String {
    let seconds = args.give_up_after.as_secs_f64();
    match publisher.is_blocked() {
        true => format!(
            "the server has blocked publishers (its memory or disk is short) and confirmed nothing for {seconds} s"
        ),
        false => format!("the server has confirmed nothing for {seconds} s"),
    }
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

fn tell(args: &Args, settled: &Settled, seconds: f64, repeated: u64) -> Result<ExitCode, String> {
    let Settled { confirmed, refused, returned, reason } = settled;
    if !args.quiet {
        let rate = *confirmed as f64 / seconds.max(1e-6);
        terminal::remark(&format!(
            "{confirmed} messages confirmed in {seconds:.3} s, {rate:.0} per second"
        ));
    }
    if repeated > 0 {
        terminal::remark(&format!(
            "{repeated} messages were sent again after the connection was lost: they may be stored twice"
        ));
    }
    if *refused > 0 {
        return Err(format!("{refused} messages were refused by the server (basic.nack)"));
    }
    if *returned > 0 {
        let reason = reason.as_deref().unwrap_or("no reason given");
        return Err(format!(
            "{returned} messages were returned, because no queue takes them: {reason}"
        ));
    }
    Ok(match repeated > 0 && args.fail_on_repeats {
        true => ExitCode::from(EXIT_REPEATED),
        false => ExitCode::SUCCESS,
    })
}

fn header(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a header must be KEY=VALUE")?;
    if key.is_empty() || key.len() > client::limits::SHORT_STRING_BYTES_MAX {
        return Err("a header's name must have 1 to 255 bytes".into());
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
