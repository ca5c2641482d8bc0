//! A scripted member: it answers what the test told it to, and can be killed with all its connections in the middle of a stream.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Instant,
};

use tenure_client::etcdserverpb::{
    self as pb, kv_server, lease_server, maintenance_server, watch_request::RequestUnion, watch_server,
};
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    codegen::BoxStream,
    transport::{Server, server::TcpIncoming},
};

/// What the member does, and what it has seen.
#[derive(Debug, Default)]
pub struct Script {
    /// The TTL that a renewal is answered with; `None` takes renewals and stays silent.
    pub renewal_ttl_s: Option<i64>,
    pub renewals: Vec<Instant>,
    /// Refuses every KV request with this instead of answering.
    pub kv_refusal: Option<Status>,
    pub kv_requests: usize,
    /// The header's revision.
    pub revision: i64,
    /// The first messages of each watch, after `created`.
    pub watch_answers: Vec<pb::WatchResponse>,
    pub watch_starts: Vec<i64>,
    /// Refuses every watch with this.
    pub watch_refusal: Option<Status>,
}

#[derive(Clone)]
struct Member(Arc<Mutex<Script>>);

impl Member {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no test panics while it holds the script")
    }

    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(pb::ResponseHeader { revision: self.script().revision, ..Default::default() })
    }

    fn kv_answer<T>(&self, answer: T) -> Result<Response<T>, Status> {
        let mut script = self.script();
        script.kv_requests += 1;
        match &script.kv_refusal {
            Some(status) => Err(Status::new(status.code(), status.message())),
            None => Ok(Response::new(answer)),
        }
    }
}

#[tonic::async_trait]
impl kv_server::Kv for Member {
    async fn range(&self, _: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        self.kv_answer(pb::RangeResponse::default())
    }

    async fn put(&self, _: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.kv_answer(pb::PutResponse::default())
    }
}

#[tonic::async_trait]
impl lease_server::Lease for Member {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let ttl = request.into_inner().ttl;
        Ok(Response::new(pb::LeaseGrantResponse { id: 7, ttl, ..Default::default() }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<BoxStream<pb::LeaseKeepAliveResponse>>, Status> {
        let member = self.clone();
        let answers = request.into_inner().filter_map(move |request| {
            let id = request.ok()?.id;
            let mut script = member.script();
            script.renewals.push(Instant::now());
            let ttl = script.renewal_ttl_s?;
            Some(Ok(pb::LeaseKeepAliveResponse { id, ttl, ..Default::default() }))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tonic::async_trait]
impl watch_server::Watch for Member {
    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<BoxStream<pb::WatchResponse>>, Status> {
        if let Some(status) = &self.script().watch_refusal {
            return Err(Status::new(status.code(), status.message()));
        }
        let (sender, answers) = mpsc::channel(16);
        let member = self.clone();
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            while let Some(Ok(request)) = requests.next().await {
                let Some(RequestUnion::CreateRequest(create)) = request.request_union else { continue };
                let header = member.header();
                let mut messages = vec![pb::WatchResponse { header, created: true, ..Default::default() }];
                {
                    let mut script = member.script();
                    script.watch_starts.push(create.start_revision);
                    messages.append(&mut script.watch_answers);
                }
                for message in messages {
                    let _ = sender.send(Ok(message)).await;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

#[tonic::async_trait]
impl maintenance_server::Maintenance for Member {
    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        Ok(Response::new(pb::StatusResponse {
            header: self.header(),
            version: "3.7.3".into(),
            ..Default::default()
        }))
    }
}

/// A running member. It has a runtime, and so a thread, of its own, because only the end of the runtime ends its connections.
pub struct Fake {
    member: Member,
    address: SocketAddr,
    running: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

impl Fake {
    pub fn start(script: Script) -> Fake {
        let member = Member(Arc::new(Mutex::new(script)));
        let listener = TcpListener::bind("127.0.0.1:0").expect("the machine has free ports");
        listener.set_nonblocking(true).expect("a socket can be told so");
        let address = listener.local_addr().expect("it is bound");
        let router = Server::builder()
            .add_service(kv_server::KvServer::new(member.clone()))
            .add_service(lease_server::LeaseServer::new(member.clone()))
            .add_service(watch_server::WatchServer::new(member.clone()))
            .add_service(maintenance_server::MaintenanceServer::new(member.clone()));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("the machine has room for a runtime").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
                tokio::select! {
                    _ = router.serve_with_incoming(TcpIncoming::from(listener)) => (),
                    _ = stopped => (),
                }
            });
        });
        Fake { member, address, running: Some((stop, thread)) }
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.member.script()
    }

    /// Cuts every connection; nobody listens any more.
    pub fn kill(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            thread.join().expect("the member does not panic");
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}
