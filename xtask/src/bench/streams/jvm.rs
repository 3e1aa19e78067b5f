//! Kafka and Pulsar, from Maven's repository: a log written and read again by the load generators that they bring.
//!
//! One node each, on loopback, with the messages of the streams beside them. Their generators are not ours, so only what
//! both can do is compared: a log is filled, then one reader reads it from its first message. Their virtual machines
//! warm up within these figures, as ours and RabbitMQ's start cold too; more messages make that part smaller.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::usage;
use crate::Outcome;
use crate::process::{command, has, output, run, run_logged, target, tools};

const KAFKA: &str = "4.3.0";
const PULSAR: &str = "4.0.7";
/// The first of 4.0 whose generator Maven Central has; it speaks with every broker of 4.0.
const PULSAR_GENERATOR: &str = "4.0.8";
const KAFKA_PORT: u16 = 9092;
const PULSAR_PORT: u16 = 6650;
const PULSAR_HTTP: u16 = 8088;
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A broker of the Java world, and when it calls a message stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// As it is installed: confirmed in memory, written by the kernel when it likes.
    Kafka,
    /// Flushes its log before it confirms: `log.flush.interval.messages=1`.
    KafkaSynced,
    /// As it is installed: its journal is synced before it confirms.
    Pulsar,
}

pub(super) struct Running {
    peer: Peer,
    child: Child,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Kafka => "Kafka 4.3.0, not synced",
            Peer::KafkaSynced => "Kafka 4.3.0, synced",
            Peer::Pulsar => "Pulsar 4.0.7, synced",
        }
    }

    /// As it is called on the command line, and in paths.
    pub(super) fn word(self) -> &'static str {
        match self {
            Peer::Kafka | Peer::KafkaSynced => "kafka",
            Peer::Pulsar => "pulsar",
        }
    }

    /// Gets its programs, where they are not there yet.
    pub(super) fn install(self) -> Outcome {
        let folder = programs(self);
        if folder.join(".ready").exists() {
            return Ok(());
        }
        if !has("java") || !has("mvn") {
            return Err(format!("{} wants java and mvn: apt install maven", self.name()));
        }
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        write("pom.xml", &self.pom())?;
        let mut maven = command("mvn", &["-q", "-B", "dependency:copy-dependencies"]);
        maven.args(["-DoutputDirectory=lib", "-DincludeScope=runtime"]).current_dir(&folder);
        run_logged(&mut maven, &folder.join("install.txt"))?;
        write(".ready", "")
    }

    fn pom(self) -> String {
        let one = |group: &str, artifact: &str, version: &str, without: &str| {
            let without = match without {
                "" => String::new(),
                word => {
                    let (group, artifact) = word.split_once(':').unwrap_or(("*", "*"));
                    format!(
                        "<exclusions><exclusion><groupId>{group}</groupId>\
                         <artifactId>{artifact}</artifactId></exclusion></exclusions>"
                    )
                }
            };
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version>{without}</dependency>"
            )
        };
        let all = match self {
            Peer::Kafka | Peer::KafkaSynced => [
                one("org.apache.kafka", "kafka_2.13", KAFKA, ""),
                one("org.apache.kafka", "kafka-tools", KAFKA, ""),
                one("org.slf4j", "slf4j-nop", "1.7.36", ""),
            ]
            .concat(),
            Peer::Pulsar => {
                let pulsar = "org.apache.pulsar";
                let etcd = format!("{pulsar}:jetcd-core-shaded");
                [
                    one(pulsar, "pulsar-broker", PULSAR, &etcd),
                    one(pulsar, "pulsar-testclient", PULSAR_GENERATOR, "*:*"),
                ]
                .concat()
            }
        };
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>millrace</groupId><artifactId>tools</artifactId><version>1</version>\
             <dependencies>{all}</dependencies></project>\n"
        )
    }

    /// Starts it with nothing in it, and waits until it listens.
    pub(super) fn start(self) -> Result<Running, String> {
        let data = data(self);
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let write = |name: &str, text: String| {
            std::fs::write(data.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        let (mut server, ports) = match self {
            Peer::Kafka | Peer::KafkaSynced => {
                write("server.properties", kafka_settings(&data, self == Peer::KafkaSynced))?;
                let settings = data.join("server.properties");
                let mut format = self.java(&["-Xmx256m"], "kafka.tools.StorageTool");
                format.args(["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"]).arg(&settings);
                run_logged(&mut format, &data.join("format.txt"))?;
                let mut server = self.java(&["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"], "kafka.Kafka");
                server.arg(settings);
                (server, vec![KAFKA_PORT])
            }
            Peer::Pulsar => {
                write("standalone.conf", PULSAR_SETTINGS.into())?;
                write("client.conf", pulsar_client())?;
                write("log4j2.xml", PULSAR_LOG.into())?;
                let heap = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=3g"];
                let mut server = self.java(&heap, "org.apache.pulsar.PulsarStandaloneStarter");
                server.arg("--config").arg(data.join("standalone.conf"));
                server.arg("--bookkeeper-dir").arg(data.join("ledgers"));
                server.arg("--metadata-dir").arg(data.join("metadata"));
                server.args(["-nss", "--no-functions-worker"]);
                (server, vec![PULSAR_PORT, PULSAR_HTTP])
            }
        };
        let said = File::create(data.join("output.txt")).map_err(|error| error.to_string())?;
        let errors = said.try_clone().map_err(|error| error.to_string())?;
        server.stdin(Stdio::null()).stdout(said).stderr(errors).current_dir(&data);
        let child = server.spawn().map_err(|error| format!("{}: {error}", self.name()))?;
        let mut running = Running { peer: self, child };
        let begin = Instant::now();
        while ports.iter().any(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err()) {
            let is_gone = running.child.try_wait().map_err(|error| error.to_string())?.is_some();
            if is_gone || begin.elapsed() > START_MAX {
                let _ = running.child.kill();
                let log = data.join("output.txt");
                return Err(format!("{} did not start: see {}", self.name(), log.display()));
            }
            std::thread::sleep(POLL);
        }
        Ok(running)
    }

    fn java(self, options: &[&str], class: &str) -> Command {
        // The folder of the data holds how Pulsar logs: its generator tells its figures in log lines.
        let jars = format!("{}:{}/lib/*", data(self).display(), programs(self).display());
        let mut java = command("java", options);
        if self == Peer::Pulsar {
            java.args(PULSAR_JAVA);
        }
        java.args(["-cp", &jars, class]);
        java
    }
}

impl Running {
    pub(super) fn topic(&self, name: &str, partitions: u32) -> Outcome {
        let log = data(self.peer).join("topics.txt");
        match self.peer {
            Peer::Kafka | Peer::KafkaSynced => {
                let mut java = self.peer.java(&["-Xmx256m"], "org.apache.kafka.tools.TopicCommand");
                java.args(["--bootstrap-server", &format!("127.0.0.1:{KAFKA_PORT}")]);
                java.args(["--create", "--topic", name, "--partitions", &partitions.to_string()]);
                run_logged(&mut java, &log)
            }
            Peer::Pulsar => {
                let topics =
                    format!("http://127.0.0.1:{PULSAR_HTTP}/admin/v2/persistent/public/default");
                let mut curl = command("curl", &["-fsS", "--retry", "20", "--retry-all-errors"]);
                curl.args([
                    "--retry-delay",
                    "1",
                    "-X",
                    "PUT",
                    "-H",
                    "Content-Type: application/json",
                ]);
                curl.args(["-d", &partitions.to_string()]);
                run_logged(curl.arg(format!("{topics}/{name}/partitions")), &log)
            }
        }
    }

    /// Writes so many messages of 1 KB: how many a second, and the broker's microseconds of CPU for each.
    pub(super) fn write(&self, topic: &str, messages: u64) -> Result<(f64, f64), String> {
        let count = messages.to_string();
        let mut java = match self.peer {
            Peer::Kafka | Peer::KafkaSynced => {
                let class = "org.apache.kafka.tools.ProducerPerformance";
                let mut java = self.peer.java(&["-Xmx512m"], class);
                java.args(["--topic", topic, "--num-records", &count, "--record-size", "1024"]);
                java.args(["--throughput", "-1", "--producer-props", "acks=all"]);
                java.args(["batch.size=65536", "linger.ms=5"]);
                java.arg(format!("bootstrap.servers=127.0.0.1:{KAFKA_PORT}"));
                java
            }
            Peer::Pulsar => {
                let mut java = self.pulsar_generator();
                java.args(["produce", "-r", "2000000", "-s", "1024", "-m", &count, "-i", "5"]);
                java.arg(format!("persistent://public/default/{topic}"));
                java
            }
        };
        self.measured(&mut java, messages, |said| match self.peer {
            Peer::Kafka | Peer::KafkaSynced => before(said, " records/sec"),
            Peer::Pulsar => before(said, " msg/s"),
        })
    }

    /// Reads a topic of so many messages from its first one, with one reader: the same figures.
    pub(super) fn read(&self, topic: &str, messages: u64) -> Result<(f64, f64), String> {
        let count = messages.to_string();
        let mut java = match self.peer {
            Peer::Kafka | Peer::KafkaSynced => {
                let class = "org.apache.kafka.tools.ConsumerPerformance";
                let mut java = self.peer.java(&["-Xmx512m"], class);
                java.args(["--bootstrap-server", &format!("127.0.0.1:{KAFKA_PORT}")]);
                java.args(["--topic", topic, "--num-records", &count]);
                java
            }
            Peer::Pulsar => {
                let mut java = self.pulsar_generator();
                java.args([
                    "consume",
                    "-sp",
                    "Earliest",
                    "-ss",
                    &format!("s-{topic}"),
                    "-m",
                    &count,
                ]);
                java.args(["-i", "1", &format!("persistent://public/default/{topic}")]);
                java
            }
        };
        self.measured(&mut java, messages, |said| match self.peer {
            Peer::Kafka | Peer::KafkaSynced => last_column(said),
            Peer::Pulsar => before(said, " msg/s"),
        })
    }

    fn pulsar_generator(&self) -> Command {
        let heap = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g"];
        let class = "org.apache.pulsar.testclient.PulsarPerfTestTool";
        let mut java = self.peer.java(&heap, class);
        java.arg(data(self.peer).join("client.conf"));
        java
    }

    fn measured(
        &self,
        generator: &mut Command,
        messages: u64,
        rate: impl Fn(&str) -> Option<f64>,
    ) -> Result<(f64, f64), String> {
        let before = usage::of(self.child.id())?;
        let said = output(generator)?;
        let after = usage::of(self.child.id())?;
        let rate = rate(&said).ok_or_else(|| format!("{}: no rate in {said}", self.peer.name()))?;
        Ok((rate, (after.cpu_s - before.cpu_s) * 1e6 / messages as f64))
    }

    /// Stops it and takes its data away.
    pub(super) fn stop(mut self) -> Outcome {
        run(&mut command("kill", &["-TERM", &self.child.id().to_string()]))?;
        let begin = Instant::now();
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if begin.elapsed() > STOP_MAX {
                self.child.kill().map_err(|error| error.to_string())?;
            }
            std::thread::sleep(POLL);
        }
        std::fs::remove_dir_all(data(self.peer)).map_err(|error| error.to_string())
    }
}

fn programs(peer: Peer) -> PathBuf {
    tools().join(match peer.word() {
        "kafka" => format!("kafka-{KAFKA}"),
        word => format!("{word}-{PULSAR}"),
    })
}

fn data(peer: Peer) -> PathBuf {
    target().join("bench").join(peer.word())
}

fn kafka_settings(data: &Path, is_synced: bool) -> String {
    let control = KAFKA_PORT + 1;
    let flush = if is_synced { "log.flush.interval.messages=1\n" } else { "" };
    format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{control}\n\
         listeners=PLAINTEXT://127.0.0.1:{KAFKA_PORT},CONTROLLER://127.0.0.1:{control}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{KAFKA_PORT}\ncontroller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\n{flush}",
        data.join("data").display()
    )
}

/// One bookie that keeps each message once, and nothing of its own beside.
const PULSAR_SETTINGS: &str = "brokerServicePort=6650\nwebServicePort=8088\nbindAddress=127.0.0.1\n\
    advertisedAddress=127.0.0.1\nclusterName=standalone\nmanagedLedgerDefaultEnsembleSize=1\n\
    managedLedgerDefaultWriteQuorum=1\nmanagedLedgerDefaultAckQuorum=1\nloadBalancerEnabled=false\n\
    allowLoopback=true\nbacklogQuotaDefaultLimitGB=-1\nbrokerDeleteInactiveTopicsEnabled=false\n\
    managedLedgerCacheSizeMB=1024\ndbStorage_writeCacheMaxSizeMb=256\n\
    dbStorage_readAheadCacheMaxSizeMb=256\njournalSyncData=true\nsystemTopicEnabled=false\n\
    topicLevelPoliciesEnabled=false\ntransactionCoordinatorEnabled=false\n";

const PULSAR_LOG: &str = "<Configuration><Appenders><Console name=\"C\"><PatternLayout pattern=\"%m%n\"/>\
    </Console></Appenders><Loggers><Root level=\"info\"><AppenderRef ref=\"C\"/></Root></Loggers></Configuration>";

fn pulsar_client() -> String {
    format!(
        "brokerServiceUrl=pulsar://127.0.0.1:{PULSAR_PORT}\nwebServiceUrl=http://127.0.0.1:{PULSAR_HTTP}\n"
    )
}

/// What Pulsar's own start script opens of Java.
const PULSAR_JAVA: &[&str] = &[
    "--add-opens=java.base/sun.net=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
];

/// The last number that stands before a word: of the whole run.
fn before(said: &str, word: &str) -> Option<f64> {
    let (before, _) = said.rsplit_once(word)?;
    before.trim_end().rsplit(' ').next()?.trim().parse().ok()
}

/// Of Kafka's consumer: messages a second since its first one, without the seconds in which it joined its group.
fn last_column(said: &str) -> Option<f64> {
    said.trim_end().lines().last()?.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_the_generators_say() {
        let kafka = "9 records sent, 8.0 records/sec (1 MB/sec), 2 ms avg\n\
                     99 records sent, 12.5 records/sec (1 MB/sec), 3 ms avg latency\n";
        assert_eq!(before(kafka, " records/sec"), Some(12.5));
        let pulsar =
            "Aggregated throughput stats --- 500 records received --- 84134.123 msg/s --- 6 Mbit/s";
        assert_eq!(before(pulsar, " msg/s"), Some(84134.123));
        let read = "start.time, end.time, fetch.nMsg.sec\n2026, 2027, 1465.5\n";
        assert_eq!(last_column(read), Some(1465.5));
    }
}
