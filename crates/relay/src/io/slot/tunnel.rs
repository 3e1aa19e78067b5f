//! TLS under the replication connection.
//!
//! The client that reads the log has TLS only together with a second C library for it. So it connects to a Unix socket
//! that nobody else can reach, and from there its bytes go to the server under the same TLS that the relay's other
//! connections have: the same authorities, the same check of the name.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslNegotiation;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Error;
use crate::io::postgres::{Database, NO_TLS, Place, TlsFiles, tls_words};

/// Buffers for what comes from the server, and for what goes to it.
const FROM_SERVER_BYTES: usize = 64 << 10;
const TO_SERVER_BYTES: usize = 8 << 10;
/// PostgreSQL's SSLRequest; the server answers with one letter.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// Part of the socket's name, as PostgreSQL's clients make it.
const PORT: u16 = 5432;

type Sealed = <MakeRustlsConnect as MakeTlsConnect<TcpStream>>::Stream;

/// One connection to the server, behind a socket that takes one client.
pub(super) struct Tunnel {
    directory: String,
    carrier: JoinHandle<()>,
    /// What broke it, if that was not one of its ends.
    failure: Arc<OnceLock<String>>,
}

impl Tunnel {
    /// Connects to the server; a client can connect to [`Tunnel::directory`] from then on.
    ///
    /// # Errors
    /// The server cannot be reached or is not the one that its certificate is for.
    pub(super) async fn open(database: &Database, files: &TlsFiles) -> Result<Self, Error> {
        let connector = MakeRustlsConnect::new(files.client_config()?);
        let server = connect(database, connector).await.map_err(|text| Error::Database {
            doing: format!("connecting to {} for the log", database.address()),
            text,
            is_temporary: true,
        })?;
        let door = Door::make().map_err(|error| {
            Error::setup(format!(
                "TLS for the log needs a directory for a socket: {error}; TMPDIR can name one"
            ))
        })?;
        let directory = door.directory.clone();
        let failure = Arc::default();
        let carrier = tokio::spawn(carry(door, server, Arc::clone(&failure)));
        Ok(Self { directory, carrier, failure })
    }

    /// The host for a client that takes directories of sockets for hosts, and its port.
    pub(super) fn host(&self) -> (String, u16) {
        (self.directory.clone(), PORT)
    }

    /// Why the connection broke, where the client cannot know: the network, TLS.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Waits until what the client sent last is with the server. The client has closed.
    pub(super) async fn close(mut self, within: Duration) {
        let _ = tokio::time::timeout(within, &mut self.carrier).await;
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

/// Takes one client and carries bytes until either side has ended.
async fn carry(door: Door, mut server: Sealed, failure: Arc<OnceLock<String>>) {
    let taken = door.listener.accept().await;
    // Nobody else is to come; and nothing is left behind by a relay that is killed from here on.
    drop(door);
    let (mut client, _) = match taken {
        Ok(taken) => taken,
        Err(error) => {
            let _ = failure.set(error.to_string());
            return;
        }
    };
    let (up, down) = (TO_SERVER_BYTES, FROM_SERVER_BYTES);
    let carried =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, up, down).await;
    if let Err(error) = carried {
        // Told before the client sees its end, and asks.
        let _ = failure.set(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server is gone".into(),
            _ => tls_words(&error),
        });
    }
}

/// A server under TLS, or why not.
async fn connect(database: &Database, mut connector: MakeRustlsConnect) -> Result<Sealed, String> {
    let config = database.config();
    let Place { name, address, port } = database.place();
    let found = tokio::net::lookup_host((address.as_str(), port)).await;
    let found = found.map_err(|error| format!("error looking up {address}: {error}"))?;
    let mut failure = format!("{address} has no address");
    for address in found {
        let Ok(tls) = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut connector, &name);
        let connected = async {
            let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
            set_up(&tcp, config).map_err(|error| error.to_string())?;
            seal(tcp, config.get_ssl_negotiation(), tls).await
        };
        let limit = config.get_connect_timeout().copied().unwrap_or(Duration::MAX);
        match tokio::time::timeout(limit, connected).await {
            Ok(Ok(sealed)) => return Ok(sealed),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = format!("no answer within {limit:?}"),
        }
    }
    Err(failure)
}

/// As the other connections are: a peer that is gone is noticed.
fn set_up(tcp: &TcpStream, config: &tokio_postgres::Config) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

async fn seal(
    mut tcp: TcpStream,
    negotiation: SslNegotiation,
    tls: impl TlsConnect<TcpStream, Stream = Sealed, Error = io::Error>,
) -> Result<Sealed, String> {
    if negotiation != SslNegotiation::Direct {
        tcp.write_all(&SSL_REQUEST).await.map_err(|error| error.to_string())?;
        // A byte and no more: what follows it belongs to TLS.
        let answer = tcp.read_u8().await;
        let answer = answer.map_err(|_| "the server closed the connection when asked for TLS")?;
        match answer {
            b'S' => (),
            b'N' => return Err(NO_TLS.into()),
            other => return Err(format!("no PostgreSQL answers there (but {other:#04x})")),
        }
    }
    tls.connect(tcp)
        .await
        .map_err(|error| format!("error performing TLS handshake: {}", tls_words(&error)))
}

/// A socket in a directory that only this user can enter, and that goes with it.
struct Door {
    directory: String,
    listener: UnixListener,
}

impl Door {
    fn make() -> io::Result<Self> {
        // A container may have no other directory to write to; and a socket's path must be short.
        Self::make_in(&std::env::temp_dir())
            .or_else(|error| Self::make_in(Path::new("/dev/shm")).map_err(|_| error))
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        let bits = RandomState::new().hash_one(std::process::id());
        let directory = std::path::absolute(parent)?.join(format!("millrace-{bits:016x}"));
        let said = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        };
        // It fails where there is one already, whosever that is.
        std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(said)?;
        let bound = directory
            .to_str()
            .ok_or_else(|| io::Error::other("its name is not UTF-8"))
            .and_then(|name| Ok((name, UnixListener::bind(socket(&directory))?)));
        match bound {
            Ok((name, listener)) => Ok(Self { directory: name.to_owned(), listener }),
            Err(error) => {
                remove(&directory);
                Err(said(error))
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        remove(Path::new(&self.directory));
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join(format!(".s.PGSQL.{PORT}"))
}

/// As far as it is there.
fn remove(directory: &Path) {
    let _ = std::fs::remove_file(socket(directory));
    let _ = std::fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tokio::net::TcpListener;

    use super::*;

    fn connector() -> MakeRustlsConnect {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let roots = rustls::RootCertStore::empty();
        MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// What a client is told by a server that answers its request for TLS with this.
    async fn refusal(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut request = [0; 8];
            tcp.read_exact(&mut request).await.unwrap();
            tcp.write_all(answer).await.unwrap();
            request
        });
        let url = format!("postgres://app@127.0.0.1:{port}/shop?sslmode=require");
        let database = Database::parse(&url).unwrap();
        let refused = connect(&database, connector()).await.err().unwrap();
        assert_eq!(server.await.unwrap(), SSL_REQUEST);
        refused
    }

    #[tokio::test]
    async fn a_server_that_has_no_tls_or_is_none_is_refused_in_words() {
        assert_eq!(refusal(b"N").await, NO_TLS);
        assert!(refusal(b"H").await.contains("no PostgreSQL answers there"));
        assert!(refusal(b"").await.contains("closed"));
        assert!(refusal(b"Sno TLS").await.contains("TLS handshake"));
    }

    #[tokio::test]
    async fn a_host_that_nobody_listens_on_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let url = format!("postgres://app@db.invalid:{port}/shop?hostaddr=127.0.0.1");
        let database = Database::parse(&url).unwrap();
        let refused = connect(&database, connector()).await.err().unwrap();
        assert!(refused.contains("refused"), "{refused}");
    }

    #[tokio::test]
    async fn the_socket_is_its_users_alone_and_goes_with_its_owner() {
        let door = Door::make().unwrap();
        let directory = PathBuf::from(&door.directory);
        let mode = std::fs::metadata(&directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(tokio::net::UnixStream::connect(socket(&directory)).await.is_ok());
        drop(door);
        assert!(!directory.exists());
    }

    #[tokio::test]
    async fn a_directory_that_cannot_hold_a_socket_is_left_as_it_was() {
        let parent = std::env::temp_dir().join(format!(
            "millrace-{}-{}",
            std::process::id(),
            "x".repeat(90)
        ));
        std::fs::create_dir(&parent).unwrap();
        let refused = Door::make_in(&parent).err().map(|error| error.to_string());
        let left = std::fs::read_dir(&parent).unwrap().count();
        std::fs::remove_dir_all(&parent).unwrap();
        assert!(refused.is_some_and(|words| words.contains(parent.to_str().unwrap())));
        assert_eq!(left, 0);
    }
}
