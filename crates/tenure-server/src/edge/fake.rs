//! A loop for tests: a thread that answers what the edges ask with whatever a test says, and real services on a
//! real socket in front of it.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use tenure_replica::Input;
use tenure_replica::effect::{Answer, Failure, Header};
use tenure_replica::wal::Origin;
use tenure_state::ids::{MemberId, Revision};
use tokio::sync::watch;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};

use super::{Context, Limits, routes};
use crate::handle::{Answered, Handle, ToLoop};
use crate::identity::Identity;
use crate::storage::{Storage, StorageOptions, Timings};

pub(super) const CLUSTER: u64 = 77;
pub(super) const MEMBER: u64 = 5;

/// Edges on top of a loop that is `answer`. An input that it has no answer for waits until the end.
pub(super) struct Fake {
    pub(super) ctx: Context,
    stop: watch::Sender<bool>,
}

pub(super) fn header(revision: i64) -> Header {
    Header { revision: Revision(revision), term: 3 }
}

/// An empty storage. Its directory is gone already: what is open stays so, and nothing is left behind.
pub(super) fn storage() -> Arc<Storage> {
    let root = tempfile::tempdir().expect("a temporary directory");
    let options = StorageOptions { unsafe_no_fsync: true, ..StorageOptions::small() };
    let origin = Origin { cluster: CLUSTER, member: MEMBER };
    let (tell, timings) = (Arc::new(|_| {}), Timings::default());
    let opened = Storage::open(root.path(), &options, origin, tell, timings, &mut |_| {});
    Arc::new(opened.expect("an empty directory opens").1)
}

impl Fake {
    pub(super) fn new(answer: impl FnMut(Input) -> Option<Answered<Answer>> + Send + 'static) -> Fake {
        Fake::limited(Limits::default(), answer)
    }

    pub(super) fn limited(
        limits: Limits,
        mut answer: impl FnMut(Input) -> Option<Answered<Answer>> + Send + 'static,
    ) -> Fake {
        let (to_loop, inbox) = unbounded();
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for message in inbox {
                match message {
                    ToLoop::Ask { input, answer: reply, .. } => match answer(input) {
                        Some(answered) => drop(reply.send(answered)),
                        None => unanswered.push(reply),
                    },
                    ToLoop::Tell(input) => drop(answer(input)),
                    ToLoop::OpenWatch { .. } | ToLoop::Stop => {}
                }
            }
        });
        let (stop, stopping) = watch::channel(false);
        let identity = Identity {
            cluster: CLUSTER,
            member: MemberId(MEMBER),
            name: "default".to_owned(),
            peer_urls: vec!["http://localhost:2380".to_owned()],
            client_urls: vec!["http://localhost:2379".to_owned()],
        };
        let ctx = Context {
            handle: Handle::new(to_loop),
            identity: Arc::new(identity),
            limits,
            stopping,
            storage: storage(),
            slow: Arc::default(),
        };
        Fake { ctx, stop }
    }

    /// A loop that nothing may reach.
    pub(super) fn unreachable() -> Fake {
        Fake::new(|input| panic!("nothing should reach the loop, but {input:?} did"))
    }

    pub(super) fn failing(failure: Failure) -> Fake {
        Fake::new(move |_| Some(Err(failure)))
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Serves all services on a socket of this machine, and connects to it.
    pub(super) async fn serve(&self) -> Channel {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let incoming = TcpIncoming::bind(local).expect("a free port");
        let address = incoming.local_addr().expect("a bound socket has an address");
        tokio::spawn(Server::builder().add_routes(routes(self.ctx.clone())).serve_with_incoming(incoming));
        Channel::from_shared(format!("http://{address}"))
            .expect("an address is a URL")
            .connect()
            .await
            .expect("the server listens")
    }
}
