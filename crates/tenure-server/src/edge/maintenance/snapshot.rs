//! A backup as a stream: the rows of the checkpoint, framed and cut into blobs, and at last their SHA-256.
//!
//! The rows are read on a thread of their own that waits for the client: only so many blobs are ever in memory. A
//! client that takes none for long is given up, because what is being read cannot be freed meanwhile.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tenure_proto::etcdserverpb as pb;
use tenure_replica::snapshot::Writer;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_stream::Stream;
use tonic::{Code, Status};

use crate::edge::{Context, status};
use crate::identity::ETCD_CLUSTER_VERSION;
use crate::storage::{SnapshotError, Storage};

const BLOB_BYTES: usize = 32 * 1024;
/// Blobs that wait for the client.
const BLOBS_MAX: usize = 8;
/// How often the reading thread looks whether the client has taken a blob.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What is being read cannot be freed meanwhile, so a client must take about a MiB a second on the long run; it may
/// fall half a minute behind that.
const PATIENCE: Patience = Patience { looks: 6_000, looks_max: 6_000, looks_per_blob: 6 };

/// What the reading thread hands over.
enum Part {
    Blob(Bytes),
    /// The last one, which tells a whole snapshot from one that broke off.
    Hash(Bytes),
    Broken(Status),
}

/// How often the reading thread may still look in vain. Each blob that is taken earns some looks back.
#[derive(Clone, Copy)]
struct Patience {
    looks: u32,
    looks_max: u32,
    looks_per_blob: u32,
}

impl Patience {
    fn taken(&mut self) {
        self.looks = (self.looks + self.looks_per_blob).min(self.looks_max);
    }

    /// False when it is over.
    fn looked_in_vain(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks > 0
    }
}

/// Frames rows and hands out blobs.
struct Blobs {
    /// `None` once the end is written.
    writer: Option<Writer>,
    buffer: Vec<u8>,
    hash: Sha256,
    parts: mpsc::Sender<Part>,
    patience: Patience,
}

impl Blobs {
    fn new(parts: mpsc::Sender<Part>, patience: Patience) -> Blobs {
        let mut buffer = Vec::with_capacity(2 * BLOB_BYTES);
        let writer = Some(Writer::begin(&mut buffer));
        Blobs { writer, buffer, hash: Sha256::new(), parts, patience }
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let writer = self.writer.as_mut().expect("no row comes after the end");
        writer.row(key, value, &mut self.buffer);
        self.send_full()
    }

    /// Sends whole blobs, and keeps the rest.
    fn send_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < BLOB_BYTES {
            return Ok(());
        }
        let mut blobs = Bytes::from(std::mem::take(&mut self.buffer));
        while blobs.len() >= BLOB_BYTES {
            self.send_blob(blobs.split_to(BLOB_BYTES))?;
        }
        self.buffer.reserve(2 * BLOB_BYTES);
        self.buffer.extend_from_slice(&blobs);
        Ok(())
    }

    fn send_blob(&mut self, blob: Bytes) -> io::Result<()> {
        self.hash.update(&blob);
        self.send(Part::Blob(blob))
    }

    fn end(&mut self) -> io::Result<()> {
        let writer = self.writer.take().expect("a snapshot ends once");
        writer.end(&mut self.buffer);
        self.send_full()?;
        if !self.buffer.is_empty() {
            let rest = std::mem::take(&mut self.buffer);
            self.send_blob(rest.into())?;
        }
        let hash = self.hash.finalize_reset();
        self.send(Part::Hash(Bytes::copy_from_slice(&hash)))
    }

    /// Waits for the client, but not for ever.
    fn send(&mut self, mut part: Part) -> io::Result<()> {
        loop {
            part = match self.parts.try_send(part) {
                Ok(()) => {
                    self.patience.taken();
                    return Ok(());
                }
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(TrySendError::Full(part)) => part,
            };
            if !self.patience.looked_in_vain() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn broke(&self, error: &SnapshotError) {
        let status = match error {
            SnapshotError::Reader(error) if error.kind() == io::ErrorKind::TimedOut => {
                Status::new(Code::DeadlineExceeded, "tenure: nobody read the snapshot for too long")
            }
            error => Status::new(Code::Unknown, error.to_string()),
        };
        // If the client does not take it, the missing hash tells it as well.
        let _ = self.parts.try_send(Part::Broken(status));
    }
}

/// A snapshot on its way to a client.
pub(super) struct Snapshot {
    parts: mpsc::Receiver<Part>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// About how much is left: what there will be is only known when it was read.
    remaining_bytes: u64,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Snapshot {
    pub(super) fn start(ctx: &Context, storage: &Storage, permit: OwnedSemaphorePermit) -> Snapshot {
        let (sender, parts) = mpsc::channel(BLOBS_MAX);
        let rows = Arc::new(Mutex::new(Blobs::new(sender, PATIENCE)));
        let end = Arc::clone(&rows);
        let sizes = storage.sizes();
        storage.snapshot(
            move |key, value| lock(&rows).row(key, value),
            move |read| {
                let mut blobs = lock(&end);
                let ended = read.and_then(|()| blobs.end().map_err(SnapshotError::from));
                if let Err(error) = ended {
                    tracing::info!(%error, "a snapshot broke off");
                    blobs.broke(&error);
                }
            },
        );
        Snapshot {
            parts,
            stopped: ctx.stopped(),
            remaining_bytes: sizes.checkpoint_bytes + sizes.pending_bytes,
            is_over: false,
            _permit: permit,
        }
    }

    fn message(&mut self, blob: Bytes, remaining_bytes: u64) -> pb::SnapshotResponse {
        self.remaining_bytes = remaining_bytes;
        // etcd leaves the header out, too.
        pb::SnapshotResponse { header: None, remaining_bytes, blob, version: ETCD_CLUSTER_VERSION.to_owned() }
    }

    fn fail(&mut self, status: Status) -> Option<Result<pb::SnapshotResponse, Status>> {
        self.is_over = true;
        Some(Err(status))
    }
}

/// One of two closures uses it at a time, so a lock that broke was broken by itself.
fn lock(blobs: &Mutex<Blobs>) -> std::sync::MutexGuard<'_, Blobs> {
    blobs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Snapshot {
    type Item = Result<pb::SnapshotResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.fail(status::stopped()));
        }
        self.parts.poll_recv(cx).map(|part| match part {
            Some(Part::Blob(blob)) => {
                let left = self.remaining_bytes.saturating_sub(blob.len() as u64).max(1);
                Some(Ok(self.message(blob, left)))
            }
            Some(Part::Hash(hash)) => {
                self.is_over = true;
                Some(Ok(self.message(hash, 0)))
            }
            Some(Part::Broken(status)) => self.fail(status),
            None => self.fail(Status::new(Code::Unknown, "tenure: the snapshot broke off")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends blobs to a client that takes one each `looks_apart` looks; says how many went before it was given up.
    fn sent_to_a_client_that_takes_one_each(looks_apart: u32) -> usize {
        let (sender, mut parts) = mpsc::channel(1);
        let mut blobs = Blobs::new(sender, Patience { looks: 30, looks_max: 30, looks_per_blob: 6 });
        let client = std::thread::spawn(move || {
            while parts.blocking_recv().is_some() {
                std::thread::sleep(LOOK_EVERY * looks_apart);
            }
        });
        let sent = (0..60).take_while(|_| blobs.send_blob(Bytes::from_static(b"blob")).is_ok()).count();
        drop(blobs);
        client.join().expect("no panic");
        sent
    }

    #[test]
    fn a_client_that_takes_a_little_now_and_then_is_given_up_too() {
        assert!(sent_to_a_client_that_takes_one_each(20) < 60, "the rows are pinned as long as it likes");
    }

    #[test]
    fn a_client_that_keeps_up_gets_everything() {
        assert_eq!(sent_to_a_client_that_takes_one_each(0), 60);
    }
}
