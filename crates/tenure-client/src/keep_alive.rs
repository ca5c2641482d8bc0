//! Keeping a lease in the background, and knowing when it is lost.
//!
//! The rule is one-sided: a holder may give up too early, which costs availability, and must never give up too late, which breaks
//! the lock that the lease stands for. So the deadline counts from the sending of the renewal that was answered, only an answer
//! moves it, nothing but an answer is needed to keep it, and when it passes the lease is lost, without asking anybody.

use std::{fmt, time::Duration};

use tenure_proto::etcdserverpb as pb;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    channel::{Client, Link},
    clock::{Deadline, Moment},
    error::{ClientError, Outcome},
    lease::{Grant, LeaseId, Renewed, answered, lease},
};

/// A lease is renewed when this part of what was answered has passed, so two renewals in a row may be lost.
const RENEWALS_PER_TTL: u32 = 3;

/// Renewals come up to this much earlier, so that the clients that were started together do not stay together.
const JITTER_PERCENT: u32 = 15;

/// After a failure the next attempt waits this long at first, then twice as long, and so on up to the maximum.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// tokio's timers stand still while the machine sleeps, so a deadline is looked at again at least this often.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Where a kept lease stands.
#[derive(Debug, Clone)]
pub enum Hold {
    /// It may be acted on until the deadline.
    Held {
        deadline: Deadline,
        /// What the last answer left of it.
        ttl: Duration,
        /// Answered renewals so far.
        renewals: u64,
    },
    /// It may not be acted on any more. This is final.
    Lost(Loss),
}

/// Why a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The server does not know it any more: it expired or was revoked.
    Gone { id: LeaseId },
    /// No renewal was answered in time. The server may still know it, but the holder cannot be sure.
    Unanswered { id: LeaseId, last_error: Option<String> },
    /// The handle was dropped, or its runtime shut down.
    Stopped { id: LeaseId },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone { id } => write!(f, "lease {id} lost: it expired or was revoked"),
            Loss::Unanswered { id, last_error: Some(error) } => {
                write!(f, "lease {id} lost: no renewal was answered in time ({error})")
            }
            Loss::Unanswered { id, last_error: None } => {
                write!(f, "lease {id} lost: no renewal was answered in time")
            }
            Loss::Stopped { id } => write!(f, "lease {id} is not renewed any more"),
        }
    }
}

/// A lease that is renewed as long as this value lives. Dropping it stops the renewals and leaves the lease to its time; it does
/// not revoke.
#[derive(Debug)]
pub struct KeepAlive {
    id: LeaseId,
    hold: watch::Receiver<Hold>,
    task: AbortHandle,
}

impl Client {
    /// Keeps a lease that was just granted (or renewed once).
    pub fn keep_alive(&self, grant: &Grant) -> KeepAlive {
        let held = Hold::Held { deadline: grant.deadline, ttl: grant.ttl, renewals: 0 };
        let (sender, hold) = watch::channel(held);
        let keeper = Keeper {
            client: self.clone(),
            id: grant.id,
            deadline: grant.deadline,
            renewals: 0,
            link: None,
            beat: None,
            last_error: None,
            hold: sender,
        };
        let task = tokio::spawn(keeper.run(grant.ttl)).abort_handle();
        KeepAlive { id: grant.id, hold, task }
    }
}

impl KeepAlive {
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Whether the lease may be acted on now. Exact even right after the machine has slept.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long it may be acted on without another answer.
    pub fn remaining(&self) -> Duration {
        match &*self.hold.borrow() {
            Hold::Held { deadline, .. } => deadline.remaining(),
            Hold::Lost(_) => Duration::ZERO,
        }
    }

    pub fn hold(&self) -> Hold {
        self.hold.borrow().clone()
    }

    /// Every change from here on: one for each answered renewal, and the loss.
    pub fn subscribe(&self) -> watch::Receiver<Hold> {
        self.hold.clone()
    }

    /// Waits until the lease is lost.
    pub async fn lost(&self) -> Loss {
        let mut hold = self.hold.clone();
        let end = hold.wait_for(|hold| matches!(hold, Hold::Lost(_))).await;
        match end.as_deref() {
            Ok(Hold::Lost(loss)) => loss.clone(),
            Ok(Hold::Held { .. }) => unreachable!("waited for the loss"),
            Err(_) => Loss::Stopped { id: self.id },
        }
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The background task.
struct Keeper {
    client: Client,
    id: LeaseId,
    deadline: Deadline,
    renewals: u64,
    /// The connection that the last attempt used; remembered so that one that hangs can be given up.
    link: Option<Link>,
    beat: Option<Beat>,
    last_error: Option<String>,
    hold: watch::Sender<Hold>,
}

/// An open keep-alive stream.
struct Beat {
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
}

impl Keeper {
    async fn run(mut self, granted: Duration) {
        let loss = self.keep(granted).await;
        tracing::debug!(%loss);
        self.hold.send_replace(Hold::Lost(loss));
    }

    async fn keep(&mut self, granted: Duration) -> Loss {
        let mut remaining = granted;
        // A grant that took long to arrive is renewed earlier, because its time runs since it was sent.
        let mut pause = self.deadline.remaining().saturating_sub(remaining - renew_after(remaining));
        let mut retry_pause = RETRY_PAUSE_MIN;
        loop {
            if !self.sleep(pause).await {
                return self.unanswered();
            }
            // A member that takes a renewal and does not answer is as good as dead: no attempt may eat the time of the next.
            let patience = (remaining / RENEWALS_PER_TTL).min(self.deadline.remaining());
            match time::timeout(patience, self.renew()).await {
                Ok(Ok(Some(renewed))) => {
                    remaining = renewed.remaining;
                    retry_pause = RETRY_PAUSE_MIN;
                    self.renewals += 1;
                    // An answer that leaves less than an older one did does not take back what that one promised.
                    self.deadline = self.deadline.max(Deadline::new(renewed.sent_at, remaining));
                    self.last_error = None;
                    self.hold.send_replace(Hold::Held {
                        deadline: self.deadline,
                        ttl: remaining,
                        renewals: self.renewals,
                    });
                    pause = renew_after(remaining).saturating_sub(renewed.sent_at.until(Moment::now()));
                    continue;
                }
                Ok(Ok(None)) => return Loss::Gone { id: self.id },
                Ok(Err(error)) => self.last_error = Some(error.to_string()),
                Err(_) => self.last_error = Some(format!("no answer within {} ms", patience.as_millis())),
            }
            tracing::debug!(lease = %self.id, error = self.last_error, "renewal failed");
            self.beat = None;
            if let Some(link) = self.link.take() {
                self.client.give_up(&link).await;
            }
            pause = retry_pause;
            retry_pause = (retry_pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    fn unanswered(&mut self) -> Loss {
        Loss::Unanswered { id: self.id, last_error: self.last_error.take() }
    }

    /// Sleeps, but not past the deadline; false when that has passed.
    async fn sleep(&self, pause: Duration) -> bool {
        let until = Moment::now().plus(pause);
        loop {
            let left = self.deadline.remaining();
            let pause = Moment::now().until(until);
            if left.is_zero() || pause.is_zero() {
                return !left.is_zero();
            }
            time::sleep(pause.min(left).min(DEADLINE_CHECK_INTERVAL)).await;
        }
    }

    /// Sends one renewal and waits for its answer; `None` when the lease is gone.
    async fn renew(&mut self) -> Result<Option<Renewed>, ClientError> {
        let request = pb::LeaseKeepAliveRequest { id: self.id.0 };
        let link = match &self.link {
            Some(link) => link.clone(),
            None => self.link.insert(self.client.link().await?).clone(),
        };
        let sent_at = Moment::now();
        let beat = match &mut self.beat {
            Some(beat) => {
                if beat.requests.send(request).await.is_err() {
                    return Err(ClientError::Protocol { what: "the keep-alive stream was closed" });
                }
                beat
            }
            none => {
                // The first request waits in the queue before the stream is opened: a server may send the head of its answer only
                // with the first answer. One place, because there is never more than one renewal on its way.
                let (requests, queue) = mpsc::channel(1);
                requests.try_send(request).expect("the queue is new and has one place");
                let answers = lease_stream(&link, queue).await?;
                none.insert(Beat { requests, answers })
            }
        };
        let answer = beat.answers.message().await;
        let answer = answer
            .map_err(|status| ClientError::from_status(&link.endpoint, &status, Outcome::NothingChanged))?;
        let Some(answer) = answer else {
            return Err(ClientError::Protocol { what: "the server closed the keep-alive stream" });
        };
        if answer.id != self.id.0 {
            return Err(ClientError::Protocol { what: "a renewal was answered with another lease" });
        }
        Ok(answered(answer.ttl).map(|remaining| Renewed { sent_at, remaining }))
    }
}

async fn lease_stream(
    link: &Link,
    queue: mpsc::Receiver<pb::LeaseKeepAliveRequest>,
) -> Result<Streaming<pb::LeaseKeepAliveResponse>, ClientError> {
    let mut request = tonic::Request::new(ReceiverStream::new(queue));
    require_leader(&mut request);
    let opened = lease(link.channel.clone()).lease_keep_alive(request).await;
    let response = opened
        .map_err(|status| ClientError::from_status(&link.endpoint, &status, Outcome::NothingChanged))?;
    Ok(response.into_inner())
}

/// Asks a member that loses its leader to end the stream, so that another member can be tried, instead of staying silent.
pub(crate) fn require_leader<T>(request: &mut tonic::Request<T>) {
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
}

fn renew_after(remaining: Duration) -> Duration {
    let percent = 100 - rand::random_range(0..=JITTER_PERCENT);
    remaining * percent / (100 * RENEWALS_PER_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_come_after_a_third_of_the_time_or_a_little_earlier() {
        let ttl = Duration::from_secs(30);
        for _ in 0..1000 {
            let after = renew_after(ttl);
            assert!(after <= Duration::from_secs(10) && after >= Duration::from_millis(8500), "{after:?}");
        }
    }
}
