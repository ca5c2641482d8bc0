//! From URLs to sockets that listen, and from errors of the system to words that help.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Host, ListenUrl};

const BACKLOG: i32 = 1024;

/// A socket that listens.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket that is listened on: it belongs to the runtime that made it so.
pub(super) enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, #[allow(dead_code, reason = "it is held for its drop")] SocketFile),
}

/// Does not block, and belongs to no runtime yet.
pub(super) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The name of a socket, which goes with it.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If it is gone already, all the better.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// To be called on the runtime that will accept.
    pub(super) fn register(self) -> io::Result<Accepting> {
        Ok(match self {
            Listener::Tcp(listener) => Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listener::Unix(listener, file) => {
                Accepting::Unix(tokio::net::UnixListener::from_std(listener)?, file)
            }
        })
    }
}

impl Accepting {
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        Ok(match self {
            Accepting::Tcp(listener) => Connection::Tcp(listener.accept().await?.0.into_std()?),
            Accepting::Unix(listener, _) => Connection::Unix(listener.accept().await?.0.into_std()?),
        })
    }
}

/// Also says the URL with the port that was drawn, where it was 0.
pub(super) fn bind(
    url: &ListenUrl,
    flag: &str,
    reuse_port: bool,
) -> anyhow::Result<(ListenUrl, Vec<Listener>)> {
    let (host, port) = match url {
        ListenUrl::Unix(path) => {
            let listener = bind_unix(path).with_context(|| format!("cannot listen on {url} ({flag})"))?;
            return Ok((url.clone(), vec![Listener::Unix(listener, SocketFile(path.clone()))]));
        }
        ListenUrl::Tcp { host, port } => (host, *port),
    };
    let tcp = |ip: IpAddr, port: u16| bind_tcp(SocketAddr::new(ip, port), reuse_port);
    let explained = |error: io::Error| explain(error, url, port, flag);
    let listeners = match host {
        Host::Ip(ip) => vec![tcp(*ip, port).map_err(explained)?],
        Host::Localhost => {
            let v4 = tcp(Ipv4Addr::LOCALHOST.into(), port);
            let port =
                v4.as_ref().ok().and_then(|bound| Some(bound.local_addr().ok()?.port())).unwrap_or(port);
            let v6 = tcp(Ipv6Addr::LOCALHOST.into(), port);
            match (v4, v6) {
                (Ok(v4), Ok(v6)) => vec![v4, v6],
                // One of the families is enough where the system does not have the other; but a port that is
                // taken on one of them would have clients reach somebody else.
                (Ok(one), Err(error)) | (Err(error), Ok(one)) if has_no_such_family(&error) => vec![one],
                (Err(error), _) | (_, Err(error)) => return Err(explained(error)),
            }
        }
    };
    let port = listeners[0].local_addr().context("a bound socket has an address")?.port();
    let url = ListenUrl::Tcp { host: host.clone(), port };
    Ok((url, listeners.into_iter().map(Listener::Tcp).collect()))
}

fn has_no_such_family(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

fn bind_tcp(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Lets a server start again while connections of its earlier life linger in the kernel.
    socket.set_reuse_address(true)?;
    // Off unless asked for: a second server would share the port unnoticed.
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(_) => return Err(anyhow!("another process listens there")),
            // Left behind by a process that is gone.
            Err(_) => {
                fs::remove_file(path).context("the socket of a process that is gone cannot be removed")?
            }
        }
    }
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!("there is a file of that name which is not a socket"),
        io::ErrorKind::NotFound => anyhow!("its directory does not exist"),
        _ => error.into(),
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn explain(error: io::Error, url: &ListenUrl, port: u16, flag: &str) -> anyhow::Error {
    let what_to_do = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use, perhaps by etcd or another Tenure (`ss -ltnp sport = :{port}` shows by whom); stop \
             that one, or choose another address with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have that address; {flag} must name one of its own")
        }
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 need a privilege (CAP_NET_BIND_SERVICE); choose another with {flag}")
        }
        _ => return anyhow::Error::new(error).context(format!("cannot listen on {url} ({flag})")),
    };
    anyhow!("cannot listen on {url}: {what_to_do}")
}
