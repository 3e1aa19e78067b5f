//! `millrace relay` under TLS on both sides: the same promises as without, and refusals in words.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "writes certificates for the processes that it starts"
)]

#[path = "support/relay.rs"]
mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{dir, done, given, millrace, valid};
use trials::chaos::broker::Kind;
use trials::ports;
use trials::postgres::Options;
use trials::relay::harm::Victim;
use trials::relay::process::Relay;
use trials::relay::run::Asked;
use trials::relay::truth::Source;
use trials::relay::{Plan, Run, Shape, Stage};

/// How long a relay may take to say that it does not start.
const REFUSES: Duration = Duration::from_secs(30);

/// An authority, and a server's certificate of it, in a folder that goes with it.
struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// One that signs for `name`.
    fn for_name(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = dir().join(format!("certificates-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let authority = Self { folder };
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &issuer).unwrap();
        let files = [
            ("ca.pem", issuer.pem()),
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
        ];
        for (name, text) in files {
            std::fs::write(authority.file(name), text).unwrap();
        }
        authority
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn root(&self) -> String {
        self.file("ca.pem").display().to_string()
    }

    /// Gives its certificate to the database, which takes it at its next start.
    fn give_to(&self, stage: &Stage) {
        for name in ["server.crt", "server.key"] {
            let text = std::fs::read(self.file(name)).unwrap();
            // Written over, it keeps its owner and its mode.
            std::fs::write(stage.postgres.data().join(name), text).unwrap();
        }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A stage whose database lets `app` in with a password and under TLS only. The trial's own sessions are plain.
fn stage(kind: Kind, authority: &Authority, settings: &[&str]) -> Option<Stage> {
    let options =
        Options::default().tls(&authority.file("server.crt"), &authority.file("server.key"));
    let mut stage = given(Stage::start_with(kind, millrace(), &dir(), &options, settings))?;
    stage.postgres.psql("CREATE ROLE app LOGIN REPLICATION PASSWORD 'of, app'").unwrap();
    let rules =
        "hostnossl all postgres 127.0.0.1/32 trust\nhostssl all app 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(stage.postgres.data().join("pg_hba.conf"), rules).unwrap();
    restart_postgres(&mut stage);
    Some(stage)
}

fn restart_postgres(stage: &mut Stage) {
    stage.postgres.stop().unwrap();
    stage.postgres.start_again().unwrap();
}

/// A run whose relays come as `app`.
fn prepare(stage: &mut Stage, shape: Shape, plan: Plan) -> Run<'_> {
    let run = done(Run::prepare(stage, shape, plan));
    let sql = format!(
        "GRANT ALL ON DATABASE {} TO app; GRANT ALL ON ALL TABLES IN SCHEMA public TO app; \
         ALTER TABLE outbox_messages OWNER TO app",
        run.database
    );
    done(run.sql(&sql));
    run
}

fn url(run: &Run<'_>, host: &str, options: &str) -> String {
    let port = run.stage.postgres.port();
    format!("postgres://app:of%2C%20app@{host}:{port}/{}?{options}", run.database)
}

/// The URL that works.
fn verified(run: &Run<'_>, authority: &Authority) -> String {
    url(run, "localhost", &format!("sslmode=verify-full&sslrootcert={}", authority.root()))
}

/// The command line of the run's relay, with other URLs.
fn words(run: &Run<'_>, database: &str, broker: Option<&str>) -> Vec<String> {
    let mut words = run.words();
    for (option, value) in [("--database", Some(database)), ("--url", broker)] {
        let place = words.iter().position(|word| word == option).unwrap() + 1;
        words[place] = value.map_or_else(|| words[place].clone(), str::to_owned);
    }
    words
}

fn start_relay(run: &mut Run<'_>, database: &str, broker: Option<&str>) {
    let log = run.stage.dir.join(format!("{}.txt", run.database));
    let relay = done(Relay::start(&run.stage.millrace, &words(run, database, broker), &log));
    run.relays.push(relay);
}

/// What a relay says that does not start.
#[track_caller]
fn refusal(run: &Run<'_>, database: &str, broker: Option<&str>) -> String {
    let log = run.stage.dir.join("refused.txt");
    let _ = std::fs::remove_file(&log);
    let mut relay = done(Relay::start(&run.stage.millrace, &words(run, database, broker), &log));
    let status = done(relay.wait(REFUSES));
    assert_eq!(status.code(), Some(1), "{}", relay.last_words());
    relay.last_words()
}

/// Writers, a taker and a relay.
fn start(run: &mut Run<'_>, database: &str, broker: Option<&str>) {
    run.take();
    start_relay(run, database, broker);
    if run.shape.source != Source::Poll {
        // What is there before the slot comes in the table's order, not in that of commits.
        done(run.until("it reads the log", |run| run.is_streaming()));
    }
    run.write();
}

#[test]
fn rows_arrive_in_order_from_a_database_that_takes_only_passwords_under_tls() {
    let authority = Authority::for_name("localhost");
    let Some(mut stage) = stage(Kind::Millrace, &authority, &[]) else { return };
    let shapes = [Shape::poll(Asked::Key), Shape::wal(Asked::None), Shape::messages()];
    for (shape, seed) in shapes.into_iter().zip(201..) {
        let what = format!("{shape:?}");
        let plan = Plan { transactions: 30, ..Plan::usual(seed) };
        let mut run = prepare(&mut stage, shape, plan);
        let database = verified(&run, &authority);
        start(&mut run, &database, None);
        done(run.until_delivered(50));
        let sealed =
            "SELECT bool_and(ssl), count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                      WHERE usename = 'app'";
        assert_eq!(done(run.sql(sealed)), "t|t", "{what}");
        let report = valid(done(run.finish()));
        assert_eq!((report.duplicates, report.charged), (0, 0), "nobody was killed: {what}");
        assert!(report.committed > 400, "it was a load: {what}");
    }
}

#[test]
fn a_log_under_tls_is_read_on_when_its_connection_or_its_server_is_killed() {
    let authority = Authority::for_name("localhost");
    let Some(mut stage) = stage(Kind::Millrace, &authority, &[]) else { return };
    let plan = Plan { transactions: 60, ..Plan::usual(211) };
    let mut run = prepare(&mut stage, Shape::wal(Asked::None), plan);
    let database = verified(&run, &authority);
    start(&mut run, &database, None);
    for turn in 0..3 {
        let enough = run.delivered() + 60 + 7 * turn;
        done(run.until("it goes on", |run| run.delivered() >= enough || run.is_written()));
        done(run.until("it reads the log", |run| run.is_streaming()));
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication
                   WHERE application_name = 'millrace-relay-log'";
        assert_eq!(done(run.sql(end)), "t");
        done(run.until("it reads on", |run| run.is_streaming()));
        done(Victim::Postgres.kill(&mut run));
        done(Victim::Postgres.revive(&mut run));
    }
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0, "an outage is nobody's fault");
}

#[test]
fn a_database_that_is_not_the_right_one_is_refused_in_words_and_no_row_is_touched() {
    let authority = Authority::for_name("localhost");
    let stranger = Authority::for_name("localhost");
    let Some(mut stage) = stage(Kind::Millrace, &authority, &[]) else { return };
    for (shape, seed) in [(Shape::poll(Asked::None), 221), (Shape::wal(Asked::None), 222)] {
        let mut run = prepare(&mut stage, shape, Plan { transactions: 1, ..Plan::usual(seed) });
        run.write();
        done(run.until("there are rows", Run::is_written));
        let root =
            |authority: &Authority| format!("sslmode=verify-full&sslrootcert={}", authority.root());
        let cases = [
            ("localhost", root(&stranger), "is not signed by an authority that is trusted here"),
            ("127.0.0.1", root(&authority), "is for localhost, and not for 127.0.0.1"),
            ("localhost", root(&authority) + ".missing", "ca.pem.missing"),
            ("localhost", "sslmode=disable".into(), "no encryption"),
        ];
        for (host, options, why) in cases {
            let said = refusal(&run, &url(&run, host, &options), None);
            assert!(said.contains(why), "`{why}` is not in {said}");
        }
        let wrong = verified(&run, &authority).replace("of%2C%20app", "another");
        let said = refusal(&run, &wrong, None);
        assert!(said.contains("password authentication failed"), "{said}");
        let touched = "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NOT NULL OR error IS NOT NULL";
        assert_eq!(done(run.sql(touched)), "0");
        assert_eq!(run.slot_state(), "", "no slot was made");
        assert_eq!(run.deliveries(), 0);
    }
    stage.postgres.psql("ALTER SYSTEM SET ssl = off").unwrap();
    restart_postgres(&mut stage);
    let run = prepare(&mut stage, Shape::wal(Asked::None), Plan::usual(223));
    let said = refusal(&run, &verified(&run, &authority), None);
    assert!(said.contains("the server does not speak TLS"), "{said}");
}

#[test]
fn a_certificate_that_goes_bad_later_is_waited_out() {
    let authority = Authority::for_name("localhost");
    let stranger = Authority::for_name("localhost");
    let Some(mut stage) = stage(Kind::Millrace, &authority, &[]) else { return };
    let plan = Plan { transactions: 40, ..Plan::usual(231) };
    let mut run = prepare(&mut stage, Shape::wal(Asked::None), plan);
    let database = verified(&run, &authority);
    start(&mut run, &database, None);
    done(run.until_delivered(50));
    stranger.give_to(run.stage);
    restart_postgres(run.stage);
    done(run.until("the relay says why", |run| {
        run.relays[0].last_words().contains("is not signed by an authority")
    }));
    authority.give_to(run.stage);
    restart_postgres(run.stage);
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0, "it is nobody's fault");
}

#[test]
fn rows_arrive_at_rabbitmq_under_tls_and_one_that_is_not_believed_gets_none() {
    let authority = Authority::for_name("localhost");
    let stranger = Authority::for_name("localhost");
    let port = ports::free().unwrap();
    let listener = [
        format!("listeners.ssl.default = 127.0.0.1:{port}"),
        format!("ssl_options.certfile = {}", authority.file("server.crt").display()),
        format!("ssl_options.keyfile = {}", authority.file("server.key").display()),
        "ssl_options.verify = verify_none".into(),
    ];
    let listener: Vec<&str> = listener.iter().map(String::as_str).collect();
    let Some(mut stage) = stage(Kind::Rabbitmq, &authority, &listener) else { return };
    let broker = |host: &str, authority: &Authority| {
        format!("amqps://guest:guest@{host}:{port}/%2f?cacertfile={}", authority.root())
    };
    for (shape, seed) in [(Shape::poll(Asked::Key), 241), (Shape::wal(Asked::None), 242)] {
        let what = format!("{shape:?}");
        let mut run = prepare(&mut stage, shape, Plan { transactions: 25, ..Plan::usual(seed) });
        let database = verified(&run, &authority);
        let cases = [
            ("localhost", &stranger, "it is not signed by an authority in"),
            ("127.0.0.1", &authority, "it is for localhost, and not for 127.0.0.1"),
        ];
        for (host, believed, why) in cases {
            let said = refusal(&run, &database, Some(&broker(host, believed)));
            assert!(said.contains(why), "`{why}` is not in {said}");
        }
        assert_eq!(run.slot_state(), "", "no slot was made");
        start(&mut run, &database, Some(&broker("localhost", &authority)));
        let report = valid(done(run.finish()));
        assert_eq!((report.duplicates, report.charged), (0, 0), "nobody was killed: {what}");
        assert!(report.committed > 300, "it was a load: {what}");
    }
}
