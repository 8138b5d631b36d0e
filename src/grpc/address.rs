//! Where the door listens: a TCP address or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use super::caller::Peer;

/// How a Unix socket's path is told from a host.
const UNIX: &str = "unix:";

/// An open socket that takes connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    bound: BoundAddress,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which goes when nobody listens any more.
#[derive(Debug)]
struct SocketFile(PathBuf);

/// The address really bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundAddress {
    /// Host and port.
    Tcp(SocketAddr),
    /// The socket's file.
    Unix(PathBuf),
}

/// A connection's byte stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Whether `text` is an address: `HOST:PORT`, or `unix:` and a path.
pub fn is_address(text: &str) -> bool {
    match (text.strip_prefix(UNIX), text.rsplit_once(':')) {
        (Some(path), _) => !path.is_empty(),
        (None, Some((host, port))) => !host.is_empty() && port.parse::<u16>().is_ok(),
        (None, None) => false,
    }
}

// === impl Listener ===

impl Listener {
    /// Opens the socket. The file of a Unix socket on which nobody listens any more is replaced.
    ///
    /// # Errors
    /// What the operating system says.
    pub async fn bind(address: &str) -> io::Result<Self> {
        let Some(path) = address.strip_prefix(UNIX) else {
            let socket = TcpListener::bind(address).await?;
            let bound = BoundAddress::Tcp(socket.local_addr()?);
            return Ok(Self {
                socket: Socket::Tcp(socket),
                bound,
            });
        };
        let path = Path::new(path);
        let socket = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path).await => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        let file = SocketFile(path.to_owned());
        Ok(Self {
            socket: Socket::Unix(socket, file),
            bound: BoundAddress::Unix(path.to_owned()),
        })
    }

    /// The address really bound.
    pub fn bound(&self) -> &BoundAddress {
        &self.bound
    }

    /// Takes the next connection, and says who is at its other end.
    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                // Replies are small and each is awaited.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "nodelay cannot be set");
                }
                // An IPv4 address that came over an IPv6 socket is the same machine.
                Ok((Box::new(stream), Peer(Some(peer.ip().to_canonical()))))
            }
            Socket::Unix(socket, _file) => Ok((Box::new(socket.accept().await?.0), Peer(None))),
        }
    }
}

/// Whether a file is a socket that was left behind by a process that has gone.
async fn is_stale(path: &Path) -> bool {
    // Anything else refuses a connection too, and is somebody's.
    let kind = std::fs::symlink_metadata(path).map(|file| file.file_type());
    if !kind.is_ok_and(|kind| kind.is_socket()) {
        return false;
    }
    let connected = tokio::net::UnixStream::connect(path).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "a socket's file cannot be removed");
        }
    }
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_texts() {
        for good in [
            "0.0.0.0:0",
            "[::1]:50051",
            "localhost:1",
            "unix:/run/detectd.sock",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "localhost",
            ":50051",
            "localhost:http",
            "localhost:65536",
            "unix:",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_file_left_behind_is_replaced_and_a_live_socket_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = format!("{UNIX}{}", path.display());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // leaves its file
        let listener = Listener::bind(&address).await.unwrap();
        assert_eq!(listener.bound().to_string(), address);
        assert!(
            Listener::bind(&address).await.is_err(),
            "somebody listens there"
        );
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(Listener::bind(&address).await.is_err(), "it is a file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
