use std::sync::Arc;
use std::sync::Mutex;
use std::task::Waker;

use tenure_replica::Input;
use tenure_replica::effect::{Answer, Failure};
use tenure_state::ids::Nanos;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Code;

use super::*;
use crate::edge::fake::{CLUSTER, Fake, MEMBER, header};

type Request = Result<pb::LeaseKeepAliveRequest, Status>;

/// Requests as a client sends them, one by one.
struct Requests(mpsc::UnboundedReceiver<Request>);

impl Stream for Requests {
    type Item = Request;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Request>> {
        self.0.poll_recv(cx)
    }
}

fn requests() -> (mpsc::UnboundedSender<Request>, Requests) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Requests(receiver))
}

fn ask(id: i64) -> Request {
    Ok(pb::LeaseKeepAliveRequest { id })
}

/// A loop in which positive leases live, with 2.5 s left; and the batches that it was asked.
fn renewing() -> (Fake, Arc<Mutex<Vec<Vec<i64>>>>) {
    let batches = Arc::new(Mutex::new(Vec::new()));
    let seen = batches.clone();
    let fake = Fake::new(move |input| {
        let Input::Renew { ids, .. } = input else { panic!("only renewals, not {input:?}") };
        seen.lock().expect("no test panics with it").push(ids.iter().map(|id| id.0).collect());
        let left = |id: LeaseId| (id.0 > 0).then(|| Nanos::from_millis(2_500));
        let renewed = ids.into_iter().map(|id| Renewed { id, remaining: left(id) }).collect();
        Some(Ok((header(9), Answer::Renewed(renewed))))
    });
    (fake, batches)
}

#[tokio::test]
async fn what_waits_is_one_batch_and_its_answers_come_in_one_poll() {
    let (fake, batches) = renewing();
    let (sender, requests) = requests();
    for id in [5, -3, 5, 8] {
        sender.send(ask(id)).expect("the stream is open");
    }
    let mut stream = KeepAlive::new(fake.ctx.clone(), requests);
    let first = stream.next().await.expect("an answer").expect("no error");
    let header = pb::ResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision: 9, raft_term: 3 };
    assert_eq!(first, pb::LeaseKeepAliveResponse { header: Some(header), id: 5, ttl: 2 });
    let mut cx = TaskContext::from_waker(Waker::noop());
    for (id, ttl) in [(-3, 0), (5, 2), (8, 2)] {
        let Poll::Ready(Some(Ok(answer))) = Pin::new(&mut stream).poll_next(&mut cx) else {
            panic!("the answer to {id} is not there at once")
        };
        assert_eq!((answer.id, answer.ttl), (id, ttl));
    }
    assert!(Pin::new(&mut stream).poll_next(&mut cx).is_pending());
    assert_eq!(*batches.lock().expect("no panic"), [[5, -3, 5, 8]]);

    // A lease that does not live ended nothing: the stream goes on.
    sender.send(ask(1)).expect("the stream is open");
    assert_eq!(stream.next().await.expect("an answer").expect("no error").id, 1);
}

#[tokio::test]
async fn a_client_that_is_done_gets_its_last_answers_and_a_good_end() {
    let (fake, batches) = renewing();
    let (sender, requests) = requests();
    sender.send(ask(1)).expect("the stream is open");
    sender.send(ask(2)).expect("the stream is open");
    drop(sender);
    let mut stream = KeepAlive::new(fake.ctx.clone(), requests);
    let mut answered = Vec::new();
    while let Some(answer) = stream.next().await {
        answered.push(answer.expect("no error").id);
    }
    assert_eq!(answered, [1, 2]);
    assert_eq!(batches.lock().expect("no panic").len(), 1);
    assert!(stream.next().await.is_none(), "it stays ended");
}

#[tokio::test]
async fn more_than_a_batch_is_several() {
    let (fake, batches) = renewing();
    let (sender, requests) = requests();
    let count = BATCH_MAX as i64 + 10;
    for id in 1..=count {
        sender.send(ask(id)).expect("the stream is open");
    }
    drop(sender);
    let mut stream = KeepAlive::new(fake.ctx.clone(), requests);
    // A tokio channel hands out no more than 128 messages in one poll, unlike what comes from the network.
    tokio::task::unconstrained(async {
        for id in 1..=count {
            assert_eq!(stream.next().await.expect("an answer").expect("no error").id, id);
        }
        assert!(stream.next().await.is_none());
    })
    .await;
    let sizes: Vec<usize> = batches.lock().expect("no panic").iter().map(Vec::len).collect();
    assert_eq!(sizes, [BATCH_MAX, 10]);
}

#[tokio::test]
async fn a_failure_ends_the_stream_with_its_status() {
    for (failure, text) in
        [(Failure::NoLeader, "etcdserver: no leader"), (Failure::Stopped, "etcdserver: server stopped")]
    {
        let fake = Fake::failing(failure);
        let (sender, requests) = requests();
        sender.send(ask(1)).expect("the stream is open");
        let mut stream = KeepAlive::new(fake.ctx.clone(), requests);
        let status = stream.next().await.expect("an end").expect_err("an error");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, text));
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn a_broken_request_is_told_after_the_answers_before_it() {
    let (fake, _) = renewing();
    let (sender, requests) = requests();
    sender.send(ask(1)).expect("the stream is open");
    sender.send(Err(Status::internal("broken"))).expect("the stream is open");
    let mut stream = KeepAlive::new(fake.ctx.clone(), requests);
    assert_eq!(stream.next().await.expect("an answer").expect("no error").id, 1);
    assert_eq!(stream.next().await.expect("an end").expect_err("an error").message(), "broken");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn an_idle_stream_and_one_that_waits_end_when_the_server_stops() {
    for asked in [0, 1] {
        let waiting = Fake::new(|_| None);
        let (sender, requests) = requests();
        for id in 0..asked {
            sender.send(ask(id)).expect("the stream is open");
        }
        let mut stream = KeepAlive::new(waiting.ctx.clone(), requests);
        assert!(Pin::new(&mut stream).poll_next(&mut TaskContext::from_waker(Waker::noop())).is_pending());
        waiting.stop();
        let status = stream.next().await.expect("an end").expect_err("an error");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: server stopped"));
        assert!(stream.next().await.is_none());
    }
}
