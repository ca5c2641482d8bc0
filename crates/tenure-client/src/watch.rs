//! Watches that outlive their connection. A watch is a position in the history of the store; when the connection goes, the
//! position stays, and the next connection goes on from there. If the history there has been compacted meanwhile, events are
//! missing, and the caller is told so instead of getting a gap.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tenure_proto::{
    etcdserverpb::{
        self as pb, watch_client::WatchClient, watch_create_request::FilterType, watch_request::RequestUnion,
    },
    mvccpb,
};
use tokio::{sync::mpsc, time};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::{
    channel::{Client, Link, MESSAGE_BYTES_MAX},
    error::{ClientError, Failure, Outcome},
    keep_alive::require_leader,
    kv::KeyRange,
};

/// After a failure the next attempt waits this long at first, then twice as long, and so on up to the maximum.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Requests that wait to be sent: the creation, and a question about progress.
const REQUEST_QUEUE_LEN_MAX: usize = 2;

pub use tenure_proto::etcdserverpb::watch_create_request::FilterType as Filter;

/// What to watch, and from where on.
#[derive(Debug, Clone)]
pub struct Watch {
    range: KeyRange,
    start_revision: i64,
    prev_kv: bool,
    progress_notify: bool,
    filters: Vec<FilterType>,
}

impl Watch {
    pub fn new(range: KeyRange) -> Watch {
        Watch { range, start_revision: 0, prev_kv: false, progress_notify: false, filters: Vec::new() }
    }

    pub fn key(key: impl Into<Bytes>) -> Watch {
        Watch::new(KeyRange::one(key))
    }

    pub fn prefix(prefix: impl Into<Bytes>) -> Watch {
        Watch::new(KeyRange::prefix(prefix))
    }

    /// The first revision to be told about. Without it: what happens after the watch has been created.
    pub fn start_revision(mut self, revision: i64) -> Watch {
        self.start_revision = revision;
        self
    }

    /// Events carry what was there before.
    pub fn prev_kv(mut self) -> Watch {
        self.prev_kv = true;
        self
    }

    /// Let the server say now and then how far it has looked; see [`Notice::Progress`].
    pub fn progress_notify(mut self) -> Watch {
        self.progress_notify = true;
        self
    }

    /// Leave out this kind of event.
    pub fn without(mut self, filter: Filter) -> Watch {
        self.filters.push(filter);
        self
    }
}

/// What a watch has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// The server watches from here on: everything after this revision will be told. Comes once.
    Created { revision: i64 },
    /// What happened, in order; all events of one revision come together.
    Events { revision: i64, events: Vec<mvccpb::Event> },
    /// Nothing that matters happened up to this revision, and nothing will be told about it later.
    Progress { revision: i64 },
}

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    position: Position,
    stream: Option<Stream>,
    retry_pause: Duration,
    /// A server has taken the watch at least once. From then on it is tried for ever; before, a failure is an answer.
    created_once: bool,
    last_error: Option<ClientError>,
    /// Why there is no server now, after there was one.
    outage: tokio::sync::watch::Sender<Option<String>>,
}

#[derive(Debug)]
struct Stream {
    link: Link,
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: Streaming<pb::WatchResponse>,
}

/// Everything that a watch must remember to go on elsewhere; no connection takes part in it.
#[derive(Debug)]
struct Position {
    watch: Watch,
    /// The first revision not yet told; 0 as long as the server has not said what "now" is.
    next_revision: i64,
    told_created: bool,
    ready: VecDeque<Notice>,
}

impl Client {
    /// Starts to watch. Returns once the server has taken the watch, so nothing after that is missed, and a wrong request, or a
    /// cluster that cannot be reached, is an error here.
    pub async fn watch(&self, watch: Watch) -> Result<Watcher, ClientError> {
        let mut watcher = Watcher {
            client: self.clone(),
            position: Position::new(watch),
            stream: None,
            retry_pause: RETRY_PAUSE_MIN,
            created_once: false,
            last_error: None,
            outage: tokio::sync::watch::Sender::new(None),
        };
        let after = self.options().request_timeout;
        let created = async {
            while !watcher.created_once {
                watcher.step().await?;
            }
            Ok(())
        };
        match time::timeout(after, created).await {
            Ok(created) => created?,
            // What went wrong the last time says more than that time is up.
            Err(_) => {
                let timeout = ClientError::Timeout { after, of: Outcome::NothingChanged };
                return Err(watcher.last_error.take().unwrap_or(timeout));
            }
        }
        Ok(watcher)
    }
}

impl Watcher {
    /// The next thing to be told. Waits for as long as it takes, over changes of leader and lost connections; an error is final.
    ///
    /// Safe to cancel: a call that is dropped loses nothing.
    pub async fn next(&mut self) -> Result<Notice, ClientError> {
        loop {
            if let Some(notice) = self.position.ready.pop_front() {
                return Ok(notice);
            }
            self.step().await?;
        }
    }

    /// The first revision that has not been told yet: where another watch would go on.
    pub fn next_revision(&self) -> i64 {
        self.position.next_revision
    }

    /// Why the watch has no server, from when it lost one until one answers again; `None` in between. For whoever wants to tell
    /// somebody: the watch itself goes on without a gap.
    pub fn outage(&self) -> tokio::sync::watch::Receiver<Option<String>> {
        self.outage.subscribe()
    }

    /// Asks how far the server has looked. The answer comes as [`Notice::Progress`], or not at all while the watch lags behind.
    pub fn request_progress(&self) {
        let Some(stream) = &self.stream else { return };
        let union = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        // A full queue holds a question already, and one answer answers both.
        let _ = stream.requests.try_send(pb::WatchRequest { request_union: Some(union) });
    }

    /// Waits for one message and takes it in, or opens the stream when there is none.
    async fn step(&mut self) -> Result<(), ClientError> {
        let Some(stream) = &mut self.stream else {
            return match self.open().await {
                Ok(stream) => {
                    self.stream = Some(stream);
                    Ok(())
                }
                Err(error) => self.failed(error).await,
            };
        };
        let (link, failure) = match stream.answers.message().await {
            Ok(Some(response)) => {
                let created = response.created && !response.canceled;
                self.position.take_in(response)?;
                self.created_once |= created;
                self.retry_pause = RETRY_PAUSE_MIN;
                self.outage.send_if_modified(|outage| outage.take().is_some());
                return Ok(());
            }
            // A member that shuts down ends its streams without an error.
            Ok(None) => (stream.link.clone(), Status::unavailable("the server closed the watch")),
            Err(status) => (stream.link.clone(), status),
        };
        self.stream = None;
        self.client.give_up(&link).await;
        let error = ClientError::from_status(&link.endpoint, &failure, Outcome::NothingChanged);
        if is_passing(&failure) { self.failed(error).await } else { Err(error) }
    }

    async fn open(&self) -> Result<Stream, ClientError> {
        let link = self.client.link().await?;
        let (requests, queue) = mpsc::channel(REQUEST_QUEUE_LEN_MAX);
        let union = RequestUnion::CreateRequest(self.position.request());
        requests
            .try_send(pb::WatchRequest { request_union: Some(union) })
            .expect("the queue is new and has room");
        let mut request = tonic::Request::new(ReceiverStream::new(queue));
        require_leader(&mut request);
        let mut watch = WatchClient::new(link.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        match watch.watch(request).await {
            Ok(response) => Ok(Stream { link, requests, answers: response.into_inner() }),
            Err(status) => {
                self.client.give_up(&link).await;
                Err(ClientError::from_status(&link.endpoint, &status, Outcome::NothingChanged))
            }
        }
    }

    /// Waits before the next attempt, or gives up when there is no sense in one.
    async fn failed(&mut self, error: ClientError) -> Result<(), ClientError> {
        let never_reached = matches!(error, ClientError::Connect { .. }) && !self.created_once;
        // What no gRPC server answered in the middle of a watch, something in between did.
        let passing = error.is_unavailable()
            || error.code() == Some(Code::Internal)
            || (self.created_once && matches!(error, ClientError::NotGrpc { .. }));
        if never_reached || !passing {
            return Err(error);
        }
        if self.created_once {
            self.outage.send_if_modified(|outage| {
                let is_first = outage.is_none();
                outage.get_or_insert_with(|| error.to_string());
                is_first
            });
        }
        tracing::debug!(%error, next_revision = self.position.next_revision, "the watch goes on elsewhere");
        self.last_error = Some(error);
        let pause = self.retry_pause;
        self.retry_pause = (pause * 2).min(RETRY_PAUSE_MAX);
        time::sleep(pause).await;
        Ok(())
    }
}

/// Whether a stream that ended so may go on elsewhere: the codes on which etcd's own clients do, and broken connections.
fn is_passing(status: &Status) -> bool {
    Failure::of(status) != Failure::Answered || matches!(status.code(), Code::Unavailable | Code::Internal)
}

impl Position {
    fn new(watch: Watch) -> Position {
        let next_revision = watch.start_revision;
        Position { watch, next_revision, told_created: false, ready: VecDeque::new() }
    }

    fn request(&self) -> pb::WatchCreateRequest {
        pb::WatchCreateRequest {
            key: self.watch.range.key.clone(),
            range_end: self.watch.range.range_end.clone(),
            start_revision: self.next_revision,
            progress_notify: self.watch.progress_notify,
            filters: self.watch.filters.iter().map(|filter| (*filter).into()).collect(),
            prev_kv: self.watch.prev_kv,
            ..Default::default()
        }
    }

    fn take_in(&mut self, response: pb::WatchResponse) -> Result<(), ClientError> {
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        // Events that were found before the end still count.
        if let Some(last) = response.events.last() {
            let last_revision = last.kv.as_ref().map_or(revision, |kv| kv.mod_revision);
            // While history is replayed the header is ahead of the events, so only the events say how far the watch has come.
            self.next_revision = last_revision + 1;
            self.ready.push_back(Notice::Events { revision, events: response.events });
        } else if response.created && !response.canceled {
            // "From now on" is bound here: without this, what happens between a lost connection and the next is lost, too.
            if self.next_revision == 0 {
                self.next_revision = revision + 1;
            }
            if !self.told_created {
                self.told_created = true;
                self.ready.push_back(Notice::Created { revision });
            }
        } else if !response.canceled {
            self.next_revision = self.next_revision.max(revision + 1);
            self.ready.push_back(Notice::Progress { revision });
        }
        if response.compact_revision != 0 {
            return Err(ClientError::Compacted { compact_revision: response.compact_revision });
        }
        if response.canceled {
            return Err(ClientError::WatchEnded { reason: response.cancel_reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(revision: i64) -> Option<pb::ResponseHeader> {
        Some(pb::ResponseHeader { revision, ..Default::default() })
    }

    fn event(mod_revision: i64) -> mvccpb::Event {
        let kv = mvccpb::KeyValue { key: "k".into(), mod_revision, ..Default::default() };
        mvccpb::Event { kv: Some(kv), ..Default::default() }
    }

    #[test]
    fn a_watch_from_now_on_is_bound_to_the_revision_of_its_creation() {
        let mut position = Position::new(Watch::key("k"));
        assert_eq!(position.request().start_revision, 0);
        let created = pb::WatchResponse { header: header(7), created: true, ..Default::default() };
        position.take_in(created.clone()).expect("created");
        assert_eq!(position.request().start_revision, 8);
        assert_eq!(position.ready.pop_front(), Some(Notice::Created { revision: 7 }));

        // A second connection creates the watch again, at a later revision: nothing may be skipped, nothing told twice.
        let again = pb::WatchResponse { header: header(9), ..created };
        position.take_in(again).expect("created again");
        assert_eq!(position.request().start_revision, 8);
        assert_eq!(position.ready, []);
    }

    #[test]
    fn events_move_the_position_by_their_own_revision_and_progress_by_the_headers() {
        let mut position = Position::new(Watch::key("k").start_revision(2));
        let replay =
            pb::WatchResponse { header: header(90), events: vec![event(2), event(5)], ..Default::default() };
        position.take_in(replay).expect("events");
        assert_eq!(position.next_revision, 6);
        position.take_in(pb::WatchResponse { header: header(90), ..Default::default() }).expect("progress");
        assert_eq!(position.next_revision, 91);
        position
            .take_in(pb::WatchResponse { header: header(3), ..Default::default() })
            .expect("late progress");
        assert_eq!(position.next_revision, 91);
    }

    #[test]
    fn compaction_and_other_ends_are_told_apart() {
        let mut position = Position::new(Watch::key("k").start_revision(2));
        let compacted = pb::WatchResponse { canceled: true, compact_revision: 5, ..Default::default() };
        let error = position.take_in(compacted).expect_err("the history is gone");
        assert!(matches!(error, ClientError::Compacted { compact_revision: 5 }));
        let denied = pb::WatchResponse {
            created: true,
            canceled: true,
            cancel_reason: "etcdserver: permission denied".into(),
            ..Default::default()
        };
        let error = position.take_in(denied).expect_err("refused");
        assert_eq!(error.to_string(), "the server ended the watch: etcdserver: permission denied");
    }
}
