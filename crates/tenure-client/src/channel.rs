//! Connections. One at a time: the endpoints are members of one cluster, any of them can serve every request, and a second
//! connection would only make the order of what one client does harder to reason about. When a member fails, the next one is taken.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::{sync::Mutex, time};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::error::{ClientError, Failure, Outcome, root_cause};

/// etcd's port, for endpoints that name only a host.
const DEFAULT_PORT: u16 = 2379;

/// Reads are repeated after a pause that starts here, doubles, and stops growing at `RETRY_PAUSE_MAX`.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(400);

/// A connection that says nothing for this long while a request is open is probed, and given up when the probe is not answered.
/// etcd closes connections that probe more often than every 5 s.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(6);

/// Answers can be larger than tonic's default of 4 MiB: a range is as large as what it finds. This is the largest a gRPC peer sends.
pub(crate) const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long one endpoint may take to accept a connection.
    pub dial_timeout: Duration,
    /// How long one request may take in all, with its retries. Watches and background renewals have no such end.
    pub request_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { dial_timeout: Duration::from_secs(2), request_timeout: Duration::from_secs(5) }
    }
}

/// A handle to one cluster; cheap to clone, and all clones share the connection.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    endpoints: Vec<Named>,
    options: Options,
    link: Mutex<Slot>,
}

struct Named {
    name: String,
    endpoint: Endpoint,
}

struct Slot {
    /// The endpoint to try first.
    next: usize,
    current: Option<Link>,
}

/// One connection, and which endpoint it goes to.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) channel: Channel,
    index: usize,
    pub(crate) endpoint: String,
}

/// Whether a request may be sent a second time when nobody knows what became of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Harmless,
    Never,
}

impl Client {
    /// Endpoints are `host`, `host:port`, `http://host:port` or `unix:/path`. No connection is made yet.
    pub fn new<E: AsRef<str>>(
        endpoints: impl IntoIterator<Item = E>,
        options: Options,
    ) -> Result<Client, ClientError> {
        let endpoints = endpoints
            .into_iter()
            .map(|text| Named::parse(text.as_ref(), options.dial_timeout))
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(ClientError::Endpoint { endpoint: String::new(), why: "none was given".into() });
        }
        let link = Mutex::new(Slot { next: 0, current: None });
        Ok(Client { shared: Arc::new(Shared { endpoints, options, link }) })
    }

    pub fn options(&self) -> Options {
        self.shared.options
    }

    /// The endpoints as they are used, with scheme and port.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.shared.endpoints.iter().map(|named| named.name.as_str())
    }

    /// A client for one of the endpoints alone, for questions that are about a member and not about the cluster.
    pub(crate) fn only(&self, index: usize) -> Client {
        let Named { name, endpoint } = &self.shared.endpoints[index];
        let endpoints = vec![Named { name: name.clone(), endpoint: endpoint.clone() }];
        let link = Mutex::new(Slot { next: 0, current: None });
        Client { shared: Arc::new(Shared { endpoints, options: self.shared.options, link }) }
    }

    /// The connection in use, or a new one to the first endpoint that takes it.
    pub(crate) async fn link(&self) -> Result<Link, ClientError> {
        let shared = &*self.shared;
        let mut slot = shared.link.lock().await;
        if let Some(link) = &slot.current {
            return Ok(link.clone());
        }
        let mut tried = Vec::new();
        for step in 0..shared.endpoints.len() {
            let index = (slot.next + step) % shared.endpoints.len();
            let Named { name, endpoint } = &shared.endpoints[index];
            // tonic's own connect timeout does not cover unix sockets.
            let why = match time::timeout(shared.options.dial_timeout, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    let link = Link { channel, index, endpoint: name.clone() };
                    slot.next = index;
                    slot.current = Some(link.clone());
                    return Ok(link);
                }
                Ok(Err(error)) => root_cause(&error),
                Err(_) => format!("no connection within {:?}", shared.options.dial_timeout),
            };
            tracing::debug!(endpoint = name, why, "cannot connect");
            tried.push((name.clone(), why));
        }
        Err(ClientError::Connect { tried })
    }

    /// The member behind this connection failed: the next request takes the next endpoint.
    pub(crate) async fn give_up(&self, link: &Link) {
        let mut slot = self.shared.link.lock().await;
        if slot.current.as_ref().is_some_and(|current| current.index == link.index) {
            slot.current = None;
            slot.next = (link.index + 1) % self.shared.endpoints.len();
        }
    }

    /// Sends one request, again where that is harmless, until the request timeout.
    pub(crate) async fn unary<T, F>(
        &self,
        repeat: Repeat,
        call: impl Fn(Channel) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let after = self.shared.options.request_timeout;
        let until = time::Instant::now() + after;
        let of = match repeat {
            Repeat::Harmless => Outcome::NothingChanged,
            Repeat::Never => Outcome::Unknown,
        };
        let mut pause = RETRY_PAUSE_MIN;
        let mut last = None;
        loop {
            let attempt = async {
                let link = self.link().await.map_err(|error| (error, false))?;
                let status = match call(link.channel.clone()).await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) => status,
                };
                let failure = Failure::of(&status);
                let unavailable = failure != Failure::Answered || status.code() == Code::Unavailable;
                if unavailable {
                    self.give_up(&link).await;
                }
                let again = failure == Failure::NotSent || (unavailable && repeat == Repeat::Harmless);
                Err((ClientError::from_status(&link.endpoint, &status, of), again))
            };
            match time::timeout_at(until, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err((error, true))) => last = Some(error),
                Ok(Err((error, false))) => return Err(error),
                // What went wrong the last time says more than that time is up.
                Err(_) => return Err(last.unwrap_or(ClientError::Timeout { after, of })),
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints().collect::<Vec<_>>())
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Named {
    fn parse(text: &str, dial_timeout: Duration) -> Result<Named, ClientError> {
        let refuse = |why: &str| ClientError::Endpoint { endpoint: text.to_owned(), why: why.to_owned() };
        let name = full_name(text).map_err(&refuse)?;
        let endpoint = Endpoint::from_shared(name.clone())
            .map_err(|error| refuse(&root_cause(&error)))?
            .user_agent(concat!("tenure-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| refuse(&root_cause(&error)))?
            .connect_timeout(dial_timeout)
            .http2_keep_alive_interval(PROBE_INTERVAL)
            .keep_alive_timeout(PROBE_TIMEOUT)
            .tcp_nodelay(true);
        Ok(Named { name, endpoint })
    }
}

/// The endpoint with its scheme and port.
fn full_name(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() {
            Err("a unix: endpoint needs a path")
        } else {
            Ok(format!("unix:{path}"))
        };
    }
    if text.starts_with("https:") || text.starts_with("unixs:") {
        return Err("TLS is not supported by this client yet; use http: or unix:");
    }
    let host = match text.split_once("://") {
        Some(("http", host)) => host,
        Some(_) => return Err("the scheme must be http or unix"),
        None => text,
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() {
        return Err("there is no host in it");
    }
    if host.contains('/') {
        return Err("an endpoint has no path");
    }
    // The colons of an IPv6 address stand within brackets; what follows them is the port.
    let has_port = host.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    Ok(if has_port { format!("http://{host}") } else { format!("http://{host}:{DEFAULT_PORT}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_get_scheme_and_port() {
        assert_eq!(full_name("127.0.0.1:2379").as_deref(), Ok("http://127.0.0.1:2379"));
        assert_eq!(full_name("http://a:1/").as_deref(), Ok("http://a:1"));
        assert_eq!(full_name(" node-1 ").as_deref(), Ok("http://node-1:2379"));
        assert_eq!(full_name("[::1]").as_deref(), Ok("http://[::1]:2379"));
        assert_eq!(full_name("[::1]:9").as_deref(), Ok("http://[::1]:9"));
        assert_eq!(full_name("unix:///run/t.sock").as_deref(), Ok("unix:/run/t.sock"));
        assert_eq!(full_name("unix:t.sock").as_deref(), Ok("unix:t.sock"));
    }

    #[test]
    fn endpoints_that_cannot_work_are_refused_at_once() {
        for bad in ["", "http://", "https://a:1", "ftp://a", "unix:", "a:1/path", "a b:1"] {
            let error = Client::new([bad], Options::default()).expect_err(bad);
            assert!(matches!(error, ClientError::Endpoint { .. }), "{bad}: {error}");
        }
        assert!(Client::new(Vec::<String>::new(), Options::default()).is_err());
    }

    #[tokio::test]
    async fn a_refused_connection_names_every_endpoint_and_the_reason() {
        let client = Client::new(["127.0.0.1:1", "unix:/nonexistent/t.sock"], Options::default())
            .expect("both are well formed");
        let error = client.link().await.expect_err("nobody listens there").to_string();
        assert!(error.contains("http://127.0.0.1:1: Connection refused"), "{error}");
        assert!(error.contains("unix:/nonexistent/t.sock: No such file"), "{error}");
    }
}
