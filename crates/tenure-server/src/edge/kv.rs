//! etcd's KV service.

mod gathered;
mod range_stream;

use prost::Message;
use tenure_proto::etcdserverpb::{self as pb, kv_server};
use tenure_replica::effect::Header;
use tenure_replica::input::{Consistency, Write};
use tenure_state::applied::{Reply, Shown};
use tenure_state::command::{Op, Range, Txn};
use tenure_state::ids::Revision;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use self::gathered::{Gathered, Responses, Weight};
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

    fn weight(&self) -> Weight {
        Weight::new(self.ctx.limits.reply_bytes_max)
    }

    /// Reads a whole range, page by page, so that nobody else waits for a long one.
    async fn collect(&self, range: Range, consistency: Consistency) -> Result<pb::RangeResponse, Status> {
        let mut pages = self.ctx.handle.range(range.clone(), consistency);
        let mut header = None;
        let mut weight = self.weight();
        let mut gathered = Gathered::new(range);
        while let Some(answered) = pages.next().await {
            let (answered, page) = answered.map_err(status::failure)?;
            let header = *header.get_or_insert_with(|| range_header(answered, page.at, gathered.range()));
            gathered.add(page.records, &mut weight)?;
            if let Some(count) = page.count {
                let header = self.ctx.header_at(header, header.revision);
                return gathered.finish(header, count, &mut weight).await;
            }
        }
        unreachable!("the last page of a range says how many keys there are")
    }

    async fn txn(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        let request_bytes = request.encoded_len();
        let path = from_proto::txn_path(&request);
        let txn = from_proto::txn(request, self.ctx.limits.max_txn_ops, request_bytes)?;
        match path {
            TxnPath::Read(consistency) => self.read_txn(txn, consistency).await,
            TxnPath::Write => {
                self.fits(request_bytes)?;
                match self.write(Write::Txn(txn)).await? {
                    (header, Reply::Txn(reply)) => {
                        self.weight().add_txn(&reply)?;
                        Ok(to_proto::txn(self.ctx.header_at(header, reply.revision), reply))
                    }
                    (_, other) => {
                        unreachable!("a transaction is answered by its own reply, not by {other:?}")
                    }
                }
            }
        }
    }

    /// Evaluates a transaction that only reads, page by page like a range.
    async fn read_txn(&self, txn: Txn, consistency: Consistency) -> Result<pb::TxnResponse, Status> {
        let mut pages = self.ctx.handle.read_txn(txn.clone(), consistency);
        let mut weight = self.weight();
        let mut responses = Responses::default();
        let mut begun: Option<Gathered> = None;
        while let Some(answered) = pages.next().await {
            let (header, page) = answered.map_err(status::failure)?;
            let branch = txn.branch(page.succeeded);
            for part in page.ranges {
                let mut gathered = begun.take().unwrap_or_else(|| match &branch[responses.len()] {
                    Op::Range(range) => Gathered::new(range.clone()),
                    other => unreachable!("a transaction that only reads has no {other:?}"),
                });
                gathered.add(part.records, &mut weight)?;
                let Some(count) = part.count else {
                    begun = Some(gathered);
                    continue;
                };
                let header = to_proto::inner_header(page.at);
                responses.push(gathered.finish(header, count, &mut weight).await?);
            }
            if page.done {
                let header = Some(self.ctx.header_at(header, page.at));
                return Ok(pb::TxnResponse {
                    header,
                    succeeded: page.succeeded,
                    responses: responses.take(),
                });
            }
        }
        unreachable!("a transaction says which of its pages is the last one")
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
                    self.weight().add(&reply.prevs, Shown::All)?;
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
