//! etcd's KV service.

mod range_stream;

use prost::Message;
use tenure_proto::etcdserverpb::{self as pb, kv_server};
use tenure_replica::effect::{Answer, Header};
use tenure_replica::input::{Consistency, Read, Write};
use tenure_state::applied::{RangeReply, Reply, TxnReply};
use tenure_state::command::{Range, Txn};
use tenure_state::ids::Revision;
use tenure_state::range::{finish, shown};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use self::range_stream::RangeStream;
use super::from_proto::{self, TxnPath};
use super::status::{self, Invalid};
use super::{Context, to_proto};

/// What etcd wraps around a request in its log, which counts against the limit of a request too.
const ENVELOPE_BYTES: usize = 20;

pub(super) struct Kv {
    ctx: Context,
}

impl Kv {
    pub(super) fn new(ctx: Context) -> Kv {
        Kv { ctx }
    }

    async fn write(&self, write: Write) -> Result<(Header, Reply), Status> {
        self.ctx.handle.write(write).await.map_err(status::failure)
    }

    /// Refuses a request that would be too large for the log.
    fn fits(&self, request_bytes: usize) -> Result<(), Invalid> {
        if request_bytes + ENVELOPE_BYTES > self.ctx.limits.max_request_bytes {
            Err(Invalid::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Reads a whole range, page by page, so that nobody else waits for a long one.
    async fn collect(&self, range: Range, consistency: Consistency) -> Result<pb::RangeResponse, Status> {
        let mut pages = self.ctx.handle.range(range.clone(), consistency);
        let mut header = None;
        let mut records = Vec::new();
        while let Some(answered) = pages.next().await {
            let (answered, page) = answered.map_err(status::failure)?;
            let header = *header.get_or_insert_with(|| range_header(answered, page.at, &range));
            if records.is_empty() {
                records = page.records;
            } else {
                records.extend(page.records);
            }
            let Some(count) = page.count else { continue };
            let (records, more) = finish(records, &range);
            let reply = RangeReply { revision: header.revision, records, count, more, shown: shown(&range) };
            return Ok(to_proto::range(self.ctx.header_at(header, reply.revision), reply));
        }
        unreachable!("the last page of a range says how many keys there are")
    }

    async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        let request_bytes = request.encoded_len();
        let path = from_proto::txn_path(&request);
        let txn = from_proto::txn(request, self.ctx.limits.max_txn_ops, request_bytes)?;
        let (header, reply) = match path {
            TxnPath::Read(consistency) => self.read_txn(txn, consistency).await?,
            TxnPath::Write => {
                self.fits(request_bytes)?;
                match self.write(Write::Txn(txn)).await? {
                    (header, Reply::Txn(reply)) => (header, reply),
                    (_, other) => {
                        unreachable!("a transaction is answered by its own reply, not by {other:?}")
                    }
                }
            }
        };
        Ok(to_proto::txn(self.ctx.header_at(header, reply.revision), reply))
    }

    async fn read_txn(&self, txn: Txn, consistency: Consistency) -> Result<(Header, TxnReply), Status> {
        let answered = self.ctx.handle.read(Read::Txn(txn), consistency).await;
        match answered.map_err(status::failure)? {
            (header, Answer::Txn(reply)) => Ok((header, reply)),
            (_, other) => unreachable!("a transaction is answered by its own reply, not by {other:?}"),
        }
    }
}

/// The header of an answer to `range`, from its first page: of a read of the present, the very revision that
/// was read.
fn range_header(answered: Header, at: Revision, range: &Range) -> Header {
    if range.revision <= 0 { Header { revision: at, ..answered } } else { answered }
}

#[tonic::async_trait]
impl kv_server::Kv for Kv {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let request = request.into_inner();
        let work = |request: pb::RangeRequest| async {
            let consistency = from_proto::consistency(request.serializable);
            self.collect(from_proto::range(request)?, consistency).await
        };
        self.ctx.timed("Range", request.encoded_len(), work(request)).await
    }

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<BoxStream<pb::RangeStreamResponse>>, Status> {
        let request = request.into_inner();
        let consistency = from_proto::consistency(request.serializable);
        let range = from_proto::range_stream(request)?;
        Ok(Response::new(Box::pin(RangeStream::new(&self.ctx, range, consistency))))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let request = request.into_inner();
        let request_bytes = request.encoded_len();
        let work = async {
            let put = from_proto::put(request)?;
            self.fits(request_bytes)?;
            match self.write(Write::Put(put)).await? {
                (header, Reply::Put(reply)) => {
                    Ok(to_proto::put(self.ctx.header_at(header, reply.revision), reply))
                }
                (_, other) => unreachable!("a put is answered by its own reply, not by {other:?}"),
            }
        };
        self.ctx.timed("Put", request_bytes, work).await
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        let request_bytes = request.encoded_len();
        let work = async {
            let delete = from_proto::delete_range(request)?;
            self.fits(request_bytes)?;
            match self.write(Write::DeleteRange(delete)).await? {
                (header, Reply::DeleteRange(reply)) => {
                    Ok(to_proto::delete_range(self.ctx.header_at(header, reply.revision), reply))
                }
                (_, other) => unreachable!("a deletion is answered by its own reply, not by {other:?}"),
            }
        };
        self.ctx.timed("DeleteRange", request_bytes, work).await
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let request = request.into_inner();
        self.ctx.timed("Txn", request.encoded_len(), self.txn(request)).await
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let pb::CompactionRequest { revision, physical } = request.into_inner();
        let revision = Revision(revision);
        match self.write(Write::Compact { revision, physical }).await? {
            // Not timed: a physical compaction takes as long as there is to drop.
            (header, Reply::Compact { revision }) => {
                let header = Some(self.ctx.header_at(header, revision));
                Ok(Response::new(pb::CompactionResponse { header }))
            }
            (_, other) => unreachable!("a compaction is answered by its own reply, not by {other:?}"),
        }
    }
}
