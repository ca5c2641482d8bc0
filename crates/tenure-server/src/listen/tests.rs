//! Real sockets, with a service of one method behind them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::task::Context;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, Response};
use tenure_state::ids::MemberId;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

use super::*;
use crate::config::{Asked, Host};
use crate::handle::Handle;
use crate::http::Http;

/// Answers every call with one message, after a time that the path says.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "etcdserverpb.KV";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            match request.uri().path() {
                "/etcdserverpb.KV/Put" => tokio::time::sleep(Duration::from_millis(300)).await,
                "/etcdserverpb.KV/RangeStream" => std::future::pending().await,
                _ => {}
            }
            let message = request.into_body().collect().await.expect("a whole request").to_bytes();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().expect("a value"));
            let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
            Ok(Response::new(Body::new(body)))
        })
    }
}

fn config(args: &[&str]) -> Config {
    let args = args.iter().map(|arg| (*arg).to_owned()).chain(["--runtimes=2".to_owned()]);
    match Config::read(args, []) {
        Ok(Asked::Serve(config, _)) => *config,
        other => panic!("{other:?}"),
    }
}

struct Running {
    serving: Serving,
    metrics: Arc<Metrics>,
    urls: Vec<ListenUrl>,
    metrics_urls: Vec<ListenUrl>,
}

fn start(args: &[&str]) -> Running {
    let config = config(args);
    let bound = Bound::bind(&config).expect("free addresses");
    serve(bound, &config)
}

fn serve(bound: Bound, config: &Config) -> Running {
    let (urls, metrics_urls) = (bound.client_urls().to_vec(), bound.metrics_urls().to_vec());
    let metrics = Arc::new(Metrics::new(MemberId(1), 1, false));
    let http = Arc::new(Http {
        // Nobody reads what it asks.
        handle: Handle::new(crossbeam_channel::unbounded().0),
        metrics: metrics.clone(),
        request_timeout: Duration::from_secs(1),
        cors: config.cors.clone(),
        host_whitelist: config.host_whitelist.clone(),
        started: Instant::now(),
    });
    let everything = Front::new(Routes::new(Echo), None, http.clone());
    let serving =
        bound.serve(config, metrics.clone(), everything, Front::metrics_only(http)).expect("threads");
    Running { serving, metrics, urls, metrics_urls }
}

fn address(url: &ListenUrl) -> SocketAddr {
    match url {
        ListenUrl::Tcp { host: Host::Ip(ip), port } => (*ip, *port).into(),
        ListenUrl::Tcp { host: Host::Localhost, port } => ([127, 0, 0, 1], *port).into(),
        ListenUrl::Unix(path) => panic!("{}", path.display()),
    }
}

fn get(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn http_over_ipv4_ipv6_localhost_and_a_socket_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s.sock");
    let urls = format!("http://127.0.0.1:0,http://[::1]:0,http://localhost:0,unix://{}", path.display());
    let running = start(&["--listen-client-urls", &urls, "--listen-metrics-urls=http://127.0.0.1:0"]);
    for url in &running.urls[..3] {
        assert_ne!(address(url).port(), 0);
        let answer = get(TcpStream::connect(address(url)).expect("a connection"), "/version");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{url}: {answer}");
        assert!(answer.ends_with("\"storage\":\"3.7.0\"}"), "{url}: {answer}");
    }
    let v6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address(&running.urls[2]).port()));
    assert!(get(TcpStream::connect(v6).expect("localhost is both"), "/version").contains("200 OK"));
    assert!(get(UnixStream::connect(&path).expect("a connection"), "/version").contains("200 OK"));
    let metrics = address(&running.metrics_urls[0]);
    assert!(
        get(TcpStream::connect(metrics).expect("a connection"), "/metrics")
            .contains("\ntenure_connections 1\n")
    );
    assert!(get(TcpStream::connect(metrics).expect("a connection"), "/version").contains("404 Not Found"));
    running.serving.finish(Duration::from_secs(1));
    assert!(!path.exists(), "the socket file goes with the server");
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    for (url, flag) in [
        (format!("http://127.0.0.1:{port}"), "--listen-client-urls"),
        // One of the two families is taken: half a server is none.
        (format!("http://localhost:{port}"), "--listen-client-urls"),
    ] {
        let Err(error) = Bound::bind(&config(&[flag, &url])) else { panic!("{url} is bound twice") };
        let text = format!("{error:#}");
        assert!(text.starts_with(&format!("cannot listen on {url}: the port is in use")), "{text}");
        assert!(text.contains(&format!("sport = :{port}")) && text.contains(flag), "{text}");
    }
    // 192.0.2.0/24 is for documentation: no machine has it.
    let Err(error) = Bound::bind(&config(&["--listen-client-urls=http://192.0.2.1:1"])) else {
        panic!("bound")
    };
    assert!(error.to_string().contains("does not have that address"), "{error}");
}

#[test]
fn two_servers_share_a_port_only_if_both_are_told_to() {
    let first = Bound::bind(&config(&["--listen-client-urls=http://127.0.0.1:0", "--socket-reuse-port"]));
    let first = first.expect("a port");
    let url = first.client_urls()[0].to_string();
    assert!(Bound::bind(&config(&["--listen-client-urls", &url])).is_err());
    assert!(Bound::bind(&config(&["--listen-client-urls", &url, "--socket-reuse-port"])).is_ok());
}

#[test]
fn a_socket_file_left_behind_is_replaced_and_nothing_else_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let bind =
        |path: &Path| Bound::bind(&config(&["--listen-client-urls", &format!("unix://{}", path.display())]));
    let left = dir.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    assert!(left.exists());
    let bound = bind(&left).expect("nobody listens there");

    let Err(error) = bind(&left) else { panic!("a living server was pushed aside") };
    assert!(format!("{error:#}").contains("another process listens there"), "{error:#}");
    drop(bound);

    let file = dir.path().join("precious");
    std::fs::write(&file, "data").expect("a file");
    let Err(error) = bind(&file) else { panic!("a file was overwritten") };
    assert!(format!("{error:#}").contains("not a socket"), "{error:#}");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "data");
    let Err(error) = bind(Path::new("/nonexistent/s.sock")) else { panic!("bound") };
    assert!(format!("{error:#}").contains("directory does not exist"), "{error:#}");
}

#[test]
fn clients_cannot_use_up_the_descriptors_of_files_and_metrics() {
    let config =
        config(&["--listen-client-urls=http://127.0.0.1:0", "--listen-metrics-urls=http://127.0.0.1:0"]);
    let mut bound = Bound::bind(&config).expect("free addresses");
    bound.connections_max = 2;
    let running = serve(bound, &config);
    let connect = |url| {
        let stream = TcpStream::connect(address(url)).expect("the backlog has room");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        stream
    };
    let idle = [connect(&running.urls[0]), connect(&running.urls[0])];
    let metrics = get(connect(&running.metrics_urls[0]), "/metrics");
    assert!(metrics.contains("\ntenure_connections_accepted_total "), "{metrics}");
    let waiting = connect(&running.urls[0]);
    drop(idle);
    assert!(get(waiting, "/version").contains("200 OK"), "it is served once others have gone");
}

type Client = h2::client::SendRequest<Bytes>;

/// A gRPC client on bare HTTP/2, and the end of its connection.
async fn connect(url: &ListenUrl) -> (Client, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let stream = tokio::net::TcpStream::connect(address(url)).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    (client, tokio::spawn(connection))
}

/// Calls `method` with one message of three bytes; says its grpc-status.
async fn call(client: Client, method: &str) -> Result<String, h2::Error> {
    let mut client = client.ready().await?;
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://x/etcdserverpb.KV/{method}"))
        .header("content-type", "application/grpc")
        .header("client-api-version", "3.7.3")
        .body(())
        .expect("a request");
    let (response, mut body) = client.send_request(request, false)?;
    body.send_data(Bytes::from_static(b"\0\0\0\0\x03abc"), true)?;
    let mut body = response.await?.into_body();
    while let Some(data) = body.data().await {
        data?;
    }
    let trailers = body.trailers().await?.expect("trailers");
    Ok(trailers["grpc-status"].to_str().expect("text").to_owned())
}

fn sample(metrics: &Metrics, name: &str) -> f64 {
    let scraped = metrics.render(None);
    let line = scraped.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit_once(' ').expect("a value").1.parse().expect("a number")
}

#[tokio::test]
async fn grpc_is_served_on_the_same_port_and_counted() {
    let running = start(&["--listen-client-urls=http://127.0.0.1:0"]);
    let (client, _connection) = connect(&running.urls[0]).await;
    for _ in 0..3 {
        assert_eq!(call(client.clone(), "Range").await.expect("an answer"), "0");
    }
    assert_eq!(call(client.clone(), "NoSuchMethod").await.expect("an answer"), "0");
    let labels = "grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";
    let metrics = &running.metrics;
    assert_eq!(sample(metrics, &format!("grpc_server_started_total{{{labels}")), 3.0);
    assert_eq!(sample(metrics, &format!("grpc_server_msg_received_total{{{labels}")), 3.0);
    assert_eq!(sample(metrics, &format!("grpc_server_msg_sent_total{{{labels}")), 3.0);
    assert_eq!(sample(metrics, &format!("grpc_server_handled_total{{grpc_code=\"OK\",{labels}")), 3.0);
    assert_eq!(sample(metrics, "etcd_network_client_grpc_received_bytes_total"), 9.0);
    assert_eq!(sample(metrics, "etcd_network_client_grpc_sent_bytes_total"), 9.0);
    let requests = "etcd_server_client_requests_total{client_api_version=\"3.7.3\",type=\"unary\"}";
    assert_eq!(sample(metrics, requests), 3.0);
    assert_eq!(
        sample(metrics, "etcd_server_request_duration_seconds_count{success=\"true\",type=\"range\"}"),
        3.0
    );

    // A call that its client gives up counts as cancelled.
    let given_up = tokio::time::timeout(Duration::from_millis(100), call(client, "RangeStream")).await;
    assert!(given_up.is_err());
    let cancelled = "grpc_server_handled_total{grpc_code=\"Canceled\",grpc_method=\"RangeStream\"";
    for _ in 0..100 {
        if sample(metrics, cancelled) == 1.0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the call is not counted as cancelled");
}

#[tokio::test]
async fn a_drain_lets_calls_finish_and_closes_every_connection() {
    let running = start(&["--listen-client-urls=http://127.0.0.1:0"]);
    let (busy, busy_end) = connect(&running.urls[0]).await;
    let (_idle, idle_end) = connect(&running.urls[0]).await;
    let slow = tokio::spawn(call(busy, "Put"));
    tokio::time::sleep(Duration::from_millis(100)).await;

    let began = Instant::now();
    running.serving.drain();
    let finished = tokio::task::spawn_blocking(move || running.serving.finish(Duration::from_secs(5)));
    assert_eq!(slow.await.expect("no panic").expect("the call finishes"), "0");
    idle_end.await.expect("no panic").expect("the idle connection is closed in order");
    busy_end.await.expect("no panic").expect("the busy connection is closed in order");
    finished.await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let refused = tokio::net::TcpStream::connect(address(&running.urls[0])).await;
    assert!(refused.is_err(), "nothing is accepted any more");
}

#[tokio::test]
async fn a_call_without_end_is_cut_when_the_time_is_over() {
    let running = start(&["--listen-client-urls=http://127.0.0.1:0"]);
    let (client, end) = connect(&running.urls[0]).await;
    let endless = tokio::spawn(call(client, "RangeStream"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    running.serving.drain();
    let finished = tokio::task::spawn_blocking(move || running.serving.finish(Duration::from_millis(300)));
    assert!(endless.await.expect("no panic").is_err());
    let _ = end.await;
    finished.await.expect("no panic");
    let took = began.elapsed();
    assert!((Duration::from_millis(250)..Duration::from_secs(1)).contains(&took), "{took:?}");
    assert_eq!(sample(&running.metrics, "tenure_connections "), 0.0);
}
