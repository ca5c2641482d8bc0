//! A server in this process, and the shortest ways to ask it.

use bytes::Bytes;
use tempfile::TempDir;
use tenure_proto::etcdserverpb as pb;
use tenure_proto::etcdserverpb::cluster_client::ClusterClient;
use tenure_proto::etcdserverpb::kv_client::KvClient;
use tenure_proto::etcdserverpb::lease_client::LeaseClient;
use tenure_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_server::config::Asked;
use tenure_server::{Config, Server};
use tonic::transport::Channel;
use tonic::{Code, Status};

pub(super) struct Served {
    /// `None` only while it stops.
    server: Option<Server>,
    channel: Channel,
    _dir: TempDir,
}

impl Served {
    /// A new store of one member that serves.
    pub(super) async fn start() -> Served {
        Served::start_in(tempfile::tempdir().expect("a temporary directory")).await
    }

    async fn start_in(dir: TempDir) -> Served {
        let data_dir = dir.path().join("data").display().to_string();
        let args = ["--data-dir", &data_dir, "--listen-client-urls", "http://127.0.0.1:0"].map(str::to_owned);
        let Ok(Asked::Serve(mut config, _)) = Config::read(args, []) else { panic!("valid flags") };
        config.no_fsync = true;
        config.wal_segment_bytes = 4 << 20;
        config.wal_spare_segments = 0;
        config.ballast_bytes = 0;
        config.runtimes = 1;
        // It waits for its first leader, which a runtime must not be kept waiting for.
        let started = tokio::task::spawn_blocking(move || Server::start(&config));
        let server = started.await.expect("no panic").expect("it starts");
        let channel = connect(&server).await;
        Served { server: Some(server), channel, _dir: dir }
    }

    /// A connection of its own.
    pub(super) async fn connect(&self) -> Channel {
        connect(self.server.as_ref().expect("it runs")).await
    }

    /// Stops, and starts again on the same directory.
    pub(super) async fn restart(mut self) -> Served {
        self.stop().await;
        let dir = std::mem::replace(&mut self._dir, tempfile::tempdir().expect("a temporary directory"));
        Served::start_in(dir).await
    }

    pub(super) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            tokio::task::spawn_blocking(|| server.stop()).await.expect("no panic");
        }
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel()).max_decoding_message_size(usize::MAX)
    }

    pub(super) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel())
    }

    pub(super) fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel())
    }

    pub(super) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel())
    }

    /// Grants a lease and answers with its id.
    pub(super) async fn grant(&self, ttl: i64) -> i64 {
        let granted = self.lease().lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await;
        granted.expect("a lease").into_inner().id
    }

    /// Compacts and answers with the revision in the header.
    pub(super) async fn compact(&self, revision: i64) -> Result<i64, Status> {
        let request = pb::CompactionRequest { revision, physical: false };
        let answer = self.kv().compact(request).await?.into_inner();
        Ok(answer.header.expect("a header").revision)
    }

    /// All keys, in order.
    pub(super) async fn keys(&self) -> Vec<String> {
        let all = pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
        let answer = self.kv().range(all).await.expect("a range").into_inner();
        answer.kvs.into_iter().map(|kv| String::from_utf8(kv.key.to_vec()).expect("a text")).collect()
    }

    /// Puts so many keys, a hundred in a transaction.
    pub(super) async fn fill(&self, count: usize) {
        let names: Vec<String> = (0..count).map(|number| format!("fill/{number:06}")).collect();
        for names in names.chunks(100) {
            let puts = names.iter().map(|name| op_put(name.clone(), "a value of some length")).collect();
            self.kv().txn(then(puts)).await.expect("a transaction");
        }
    }

    /// Puts so many values of 1 MiB.
    pub(super) async fn fill_large(&self, count: usize) {
        for number in 0..count {
            let value = Bytes::from(vec![b'v'; 1 << 20]);
            let put = pb::PutRequest { key: format!("large/{number}").into(), value, ..Default::default() };
            self.kv().put(put).await.expect("a put");
        }
    }
}

async fn connect(server: &Server) -> Channel {
    let url = server.client_urls()[0].to_string();
    Channel::from_shared(url).expect("a URL").connect().await.expect("the server listens")
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            std::thread::spawn(|| server.stop());
        }
    }
}

#[track_caller]
pub(super) fn check<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, text: &str) {
    let status = result.expect_err("an error");
    assert_eq!((status.code(), status.message()), (code, text));
}

pub(super) fn put_of(key: impl Into<Bytes>, value: impl Into<Bytes>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
}

pub(super) fn delete_of(key: &'static str, range_end: &'static str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv: false }
}

/// Puts and answers with the revision.
pub(super) async fn put(kv: &mut KvClient<Channel>, key: &'static str, value: &'static str) -> i64 {
    let answer = kv.put(put_of(key, value)).await.expect("a put").into_inner();
    answer.header.expect("a header").revision
}

pub(super) async fn get(kv: &mut KvClient<Channel>, key: &'static str) -> pb::RangeResponse {
    let request = pb::RangeRequest { key: key.into(), ..Default::default() };
    kv.range(request).await.expect("a range").into_inner()
}

fn op(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

pub(super) fn op_put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> pb::RequestOp {
    op(pb::request_op::Request::RequestPut(put_of(key, value)))
}

pub(super) fn op_range(key: &'static str) -> pb::RequestOp {
    op(pb::request_op::Request::RequestRange(pb::RangeRequest { key: key.into(), ..Default::default() }))
}

pub(super) fn op_delete(key: &'static str, range_end: &'static str) -> pb::RequestOp {
    del(delete_of(key, range_end))
}

pub(super) fn del(request: pb::DeleteRangeRequest) -> pb::RequestOp {
    op(pb::request_op::Request::RequestDeleteRange(request))
}

pub(super) fn nest(txn: pb::TxnRequest) -> pb::RequestOp {
    op(pb::request_op::Request::RequestTxn(txn))
}

/// A transaction without conditions.
pub(super) fn then(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}
