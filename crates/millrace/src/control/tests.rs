//! A node alone, asked through its socket.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use broker::io::broker::Broker;
use cluster::PeerConfig;
use machine::NodeId;

use super::*;

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn launch(dir: &Path, peers: Option<PeerConfig>) -> Result<ClusterHandle, cluster::StartError> {
    let config = cluster::Config {
        data_dir: dir.to_owned(),
        groups: 2,
        shards: 1,
        wal_file_bytes: 4 << 20,
        commit_delay_us: 300,
        memory_limit: u64::MAX,
        disk_free_limit: 0,
        new_cluster: 7,
        version_max: machine::Version::NEWEST,
        reconcile_stop: false,
        peers,
    };
    cluster::launch(&config, &cluster::Failure::new(|_, why| panic!("{why}")))
}

/// An address that nobody listens on.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A node in a directory of the test's own, with its socket.
struct Asked {
    dir: PathBuf,
    cluster: ClusterHandle,
    runtime: tokio::runtime::Runtime,
}

impl Asked {
    fn start(name: &str) -> Self {
        Self::start_with(name, None)
    }

    fn start_with(name: &str, peers: Option<PeerConfig>) -> Self {
        let dir = directory(name);
        let cluster = launch(&dir, peers).unwrap();
        cluster.wait_ready();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let control = runtime.block_on(async { Control::open(&dir) }).unwrap();
        let broker = Broker::new(cluster.clone(), broker::Config::default()).unwrap();
        let start = Start {
            at: Instant::now(),
            data_dir: dir.clone(),
            amqp: OnceLock::new(),
            metrics: None,
            peers: None,
        };
        let start = Arc::new(start);
        runtime.spawn(control.serve(Running { cluster: cluster.clone(), broker, start }));
        Self { dir, cluster, runtime }
    }

    fn ask(&self, request: &Request) -> Answer {
        ask(&self.dir, request, |_| {}).unwrap()
    }

    fn say(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.dir.join(SOCKET)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        // A reset is an end, too: the node does not read on.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn stop(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        self.cluster.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_node_says_how_it_stands() {
    let node = Asked::start("control-status");
    let Answer::Status(status) = node.ask(&Request::Status) else { panic!("no status") };
    assert_eq!((status.node, status.nodes.len(), status.groups.len()), (1, 1, 3));
    assert_eq!(status.nodes[0].leads, 3);
    assert!(status.groups.iter().all(|group| group.leader == Some(1) && group.voters == [1]));
    let table = status.to_string();
    assert!(table.contains("catalog") && table.contains("nobody"), "{table}");
    assert_eq!(status.replicas, BTreeMap::from([(3, 2)]));
    assert!(table.contains("Replicas wanted: 3 for 2 group(s)\n"), "{table}");
    node.stop();
}

#[test]
fn only_the_nodes_user_may_ask_and_a_node_that_is_gone_is_told() {
    let node = Asked::start("control-mode");
    let mode = std::fs::metadata(node.dir.join(SOCKET)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let dir = node.dir.clone();
    node.stop();
    let why = ask(&dir, &Request::Status, |_| {}).unwrap_err();
    assert!(why.contains("--data-dir DIR"), "{why}");
}

#[test]
fn what_is_no_request_is_refused_and_what_is_too_long_is_not_read() {
    let node = Asked::start("control-bad");
    for text in ["status\n", "{}\n", "{\"command\":\"launch\"}\n", "\n", "\u{0}\n"] {
        let answer = node.say(text.as_bytes());
        assert!(answer.contains("does not understand the request"), "{text:?}: {answer}");
    }
    let answer = node.say(&vec![b'['; 2 * REQUEST_BYTES_MAX as usize]);
    assert!(answer.is_empty() || answer.contains("does not understand the request"), "{answer}");
    assert!(matches!(node.ask(&Request::Status), Answer::Status(_)), "others are served");
    node.stop();
}

#[test]
fn orders_that_cannot_be_carried_out_say_why() {
    let node = Asked::start("control-orders");
    let refused = |request| match node.ask(&request) {
        Answer::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(Request::Remove { node: 9 }).contains("the members are 1"));
    assert!(refused(Request::Replace { node: 1, by: 2 }).contains("ask another node"));
    assert!(refused(Request::Replace { node: 1, by: 1 }).contains("take another number"));
    let replicas = |count, groups| refused(Request::Replicas { count, groups });
    assert!(replicas(4, None).contains("give 3 or 5"));
    assert!(replicas(5, None).contains("there are 1 nodes"));
    assert!(replicas(5, Some(3)).contains("from 1 to 2"));
    assert!(refused(Request::Drain { node: 9 }).contains("is not a member"));
    let why = refused(Request::Add { node: 2, address: "a:1".to_owned() });
    assert!(why.contains("has no peer port"), "{why}");
    node.stop();
}

#[test]
fn only_a_node_that_was_added_may_join_and_only_with_the_secret() {
    let (address, listen) = (free_address(), free_address());
    let peers = vec![(NodeId(1), address.clone())];
    let one = PeerConfig { node: Some(NodeId(1)), peers, ..PeerConfig::default() };
    let node = Asked::start_with("control-join", Some(one));
    let secret = cluster::kept_secret(&node.dir).unwrap();
    let joiner = |secret: &str| PeerConfig {
        node: Some(NodeId(2)),
        listen: Some(listen.clone()),
        join: Some(address.clone()),
        secret: Some(secret.to_owned()),
        ..PeerConfig::default()
    };
    let dir = directory("control-joiner");
    let refused = |secret| launch(&dir, Some(joiner(secret))).unwrap_err().to_string();
    let why = refused(&secret);
    assert!(why.contains("`millrace cluster add 2"), "{why}");
    let status = |node: &Asked| match node.ask(&Request::Status) {
        Answer::Status(status) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(&node).nodes.len(), 1, "a stranger is no member");
    let added = node.ask(&Request::Add { node: 2, address: listen.clone() });
    assert!(matches!(&added, Answer::Done(said) if said.contains("may join")), "{added:?}");
    let why = refused("a guess that is wrong");
    assert!(why.contains("`millrace cluster token`"), "{why}");
    let early = node.ask(&Request::Add { node: 3, address: free_address() });
    assert!(
        matches!(&early, Answer::Refused(why) if why.contains("has not come yet")),
        "{early:?}"
    );
    let second = launch(&dir, Some(joiner(&secret))).unwrap();
    second.wait_ready();
    assert_eq!(cluster::kept_secret(&dir).unwrap(), secret);
    assert_eq!(status(&node).nodes.len(), 2);
    second.stop();
    node.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_data_directory_with_a_long_name_has_its_socket() {
    let node = Asked::start(&"long-".repeat(30));
    assert!(node.dir.as_os_str().len() > SOCKET_PATH_BYTES_MAX);
    assert!(matches!(node.ask(&Request::Status), Answer::Status(_)));
    assert!(node.dir.join(SOCKET).exists());
    node.stop();
}

#[test]
fn a_node_without_clients_describes_itself_and_its_lists() {
    let node = Asked::start("control-describe");
    let describe = |what| match node.ask(&Request::Describe { what }) {
        Answer::Described(described) => described,
        other => panic!("{other:?}"),
    };
    let Described::Node(about) = describe(What::Node) else { panic!("another answer") };
    assert_eq!((about.node, about.connections, &*about.state), (1, 0, "starting"));
    assert_eq!(about.groups_led, [0, 1, 2]);
    let queues = What::Queues { vhost: "/".to_owned(), after: None, limit: 1000 };
    let Described::Queues(queues) = describe(queues) else { panic!("another answer") };
    assert_eq!((queues.count, queues.next), (0, None));
    let connections = describe(What::Connections { after: None, limit: 0 });
    assert!(connections.to_string().starts_with("0 of 0 connection(s)"), "{connections}");
    node.stop();
}

#[test]
fn the_command_line_names_what_the_control_socket_is_asked() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        what: What,
    }
    for (line, json) in [
        ("describe node", r#""node""#),
        ("describe queues", r#"{"queues":{"vhost":"/","after":null,"limit":50}}"#),
        (
            "describe queues --vhost v --after q --limit 100",
            r#"{"queues":{"vhost":"v","after":"q","limit":100}}"#,
        ),
        ("describe queue q", r#"{"queue":{"vhost":"/","name":"q"}}"#),
        ("describe connections --after 1-2", r#"{"connections":{"after":"1-2","limit":50}}"#),
        ("describe connection 1-2", r#"{"connection":{"id":"1-2"}}"#),
        ("describe channel 1-2 3", r#"{"channel":{"id":"1-2","number":3}}"#),
        ("describe consumer 1-2 3 t", r#"{"consumer":{"id":"1-2","channel":3,"tag":"t"}}"#),
    ] {
        let Line { what } = clap::Parser::parse_from(line.split(' '));
        assert_eq!(serde_json::to_string(&what).unwrap(), json);
        assert_eq!(serde_json::from_str::<What>(json).unwrap(), what);
    }
}

#[test]
fn a_description_is_shorter_than_its_bound_whatever_names_are() {
    // Each of these letters takes six bytes in JSON.
    let name = "\u{1}".repeat(machine::limits::NAME_BYTES_MAX);
    let doing = format!(
        "{{\"state\":\"running\",\"user\":{name},\"vhost\":{name},\"client\":{name},\"channels\":1,\"consumers\":1,\
         \"in_flight_bytes\":1,\"outbound_bytes\":1}}",
        name = serde_json::to_string(&name).unwrap()
    );
    let line = format!(
        "{{\"id\":\"1-18446744073709551615\",\"peer\":\"[1111:1111:1111:1111:1111:1111:1111:1111]:65535\",\
         \"since_ms\":18446744073709551615,\"age_s\":18446744073709551615,\"doing\":{doing},\"problem\":null}}"
    );
    let lines = vec![line; describe::LINES_MAX].join(",");
    let list =
        format!("{{\"connections\":{{\"count\":1,\"connections\":[{lines}],\"next\":null}}}}");
    let described: Described = serde_json::from_str(&list).unwrap();
    let bytes = serde_json::to_vec(&Answer::Described(described)).unwrap().len();
    assert!(bytes < DESCRIPTION_BYTES_MAX, "{bytes} bytes");
}
