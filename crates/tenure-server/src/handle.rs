//! What the edges hold of the replica: ask and await. The channel behind it is nobody's business.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;
use tenure_replica::effect::{Answer, Failure, Header, RangePage, TxnPage, WatchOutput};
use tenure_replica::input::{Consistency, Input, Read, StreamId, Ticket, WatchInput, Write};
use tenure_state::applied::{Renewed, Reply};
use tenure_state::command::{Range, Txn};
use tenure_state::ids::LeaseId;
use tokio::sync::{mpsc, oneshot};

/// An answer with the moment that it belongs to.
pub(crate) type Answered<T> = Result<(Header, T), Failure>;

/// What the loop receives. Its queue has no bound of its own: every sender waits for its answer before it sends
/// again (one message a request, and a stream sends one at a time), so it is bounded by the requests in flight,
/// which the replica's admission refuses beyond its limits.
pub(crate) enum ToLoop {
    /// An input that is answered with its ticket.
    Ask { ticket: Ticket, input: Input, answer: oneshot::Sender<Answered<Answer>>, home: Option<Home> },
    /// An input that nobody waits for.
    Tell(Input),
    /// From now on, what the hub says to this stream goes here.
    OpenWatch { stream: StreamId, outputs: mpsc::UnboundedSender<WatchOutput> },
    /// Finish: answer what waits with [`Failure::Stopped`], close the streams, write a last checkpoint.
    Stop,
}

/// An answer on its way to who waits for it.
pub(crate) type Delivery = (oneshot::Sender<Answered<Answer>>, Answered<Answer>);

/// The thread that asked, as the loop sees it: all of a turn's answers go there in one piece. To wake a task of another
/// thread is a system call each; and answers that come one by one are written to their socket one by one.
#[derive(Clone)]
pub(crate) struct Home {
    deliveries: Arc<mpsc::UnboundedSender<Vec<Delivery>>>,
}

thread_local! {
    static HOME: OnceCell<Home> = const { OnceCell::new() };
}

impl Home {
    /// Makes this thread, which must run no other runtime, the home of what is asked on it.
    pub(crate) fn settle() {
        // Bounded by the requests in flight, as the loop's own queue is.
        let (deliveries, mut arriving) = mpsc::unbounded_channel::<Vec<Delivery>>();
        let home = Home { deliveries: Arc::new(deliveries) };
        if HOME.with(|cell| cell.set(home)).is_err() {
            return;
        }
        tokio::spawn(async move {
            while let Some(batch) = arriving.recv().await {
                deliver(batch);
            }
        });
    }

    fn here() -> Option<Home> {
        HOME.with(|cell| cell.get().cloned())
    }

    pub(crate) fn is(&self, other: &Home) -> bool {
        Arc::ptr_eq(&self.deliveries, &other.deliveries)
    }

    pub(crate) fn send(&self, batch: Vec<Delivery>) {
        // A thread that is gone has nobody who waits.
        let _ = self.deliveries.send(batch);
    }
}

pub(crate) fn deliver(batch: Vec<Delivery>) {
    for (waiting, answer) in batch {
        // A client that went away does not want its answer.
        let _ = waiting.send(answer);
    }
}

/// Asks the replica. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    to_loop: Sender<ToLoop>,
    next: Arc<AtomicU64>,
    term: Arc<AtomicU64>,
}

impl Handle {
    pub(crate) fn new(to_loop: Sender<ToLoop>) -> Handle {
        Handle { to_loop, next: Arc::new(AtomicU64::new(1)), term: Arc::new(AtomicU64::new(0)) }
    }

    /// The term as last heard of, for headers of what nobody asked for.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    /// Terms only grow, so whoever hears of one may say so.
    pub(crate) fn heard_term(&self, term: u64) {
        // Nearly always known, and then nothing is written that other cores read.
        if term > self.term() {
            self.term.fetch_max(term, Ordering::Relaxed);
        }
    }

    fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn ask(&self, ticket: Ticket, input: Input) -> Answered<Answer> {
        let (answer, answered) = oneshot::channel();
        self.to_loop
            .send(ToLoop::Ask { ticket, input, answer, home: Home::here() })
            .map_err(|_| Failure::Stopped)?;
        let answered = answered.await.unwrap_or(Err(Failure::Stopped));
        if let Ok((header, _)) = &answered {
            self.heard_term(header.term);
        }
        answered
    }

    /// Proposes a change and waits until it is applied.
    pub(crate) async fn write(&self, write: Write) -> Answered<Reply> {
        let ticket = Ticket(self.draw());
        match self.ask(ticket, Input::Write { ticket, write }).await? {
            (header, Answer::Applied(reply)) => Ok((header, reply)),
            (_, other) => unreachable!("a write is answered by what was applied, not by {other:?}"),
        }
    }

    /// Renews leases; answers in the order of `ids`.
    pub(crate) async fn renew(&self, ids: Vec<LeaseId>) -> Answered<Vec<Renewed>> {
        let ticket = Ticket(self.draw());
        match self.ask(ticket, Input::Renew { ticket, ids }).await? {
            (header, Answer::Renewed(renewed)) => Ok((header, renewed)),
            (_, other) => unreachable!("renewals are answered by renewals, not by {other:?}"),
        }
    }

    /// Asks for what is answered at once: anything but a range or a transaction.
    pub(crate) async fn read(&self, read: Read, consistency: Consistency) -> Answered<Answer> {
        let answered = self.reading(read, consistency).next(|_| true).await;
        answered.expect("there is an answer before there is none any more")
    }

    /// Starts a range read; its pages are taken one by one.
    pub(crate) fn range(&self, range: Range, consistency: Consistency) -> Pages {
        Pages(self.reading(Read::Range(range), consistency))
    }

    /// Starts a transaction that only reads; its pages are taken one by one.
    pub(crate) fn read_txn(&self, txn: Txn, consistency: Consistency) -> TxnPages {
        TxnPages(self.reading(Read::Txn(txn), consistency))
    }

    fn reading(&self, read: Read, consistency: Consistency) -> Reading {
        let ticket = Ticket(self.draw());
        Reading { handle: self.clone(), ticket, first: Some((read, consistency)), done: false }
    }

    /// Opens a watch stream. Dropping the returned half closes it with all its watches.
    pub(crate) fn watch(&self) -> (WatchStream, mpsc::UnboundedReceiver<WatchOutput>) {
        let stream = StreamId(self.draw());
        // Bounded by the hub: it sends a watch no more than the credit that its reader gave back.
        let (outputs, receiver) = mpsc::unbounded_channel();
        // When the loop is gone the receiver ends at once, which is how the stream learns of it.
        let _ = self.to_loop.send(ToLoop::OpenWatch { stream, outputs });
        (WatchStream { handle: self.clone(), stream }, receiver)
    }

    pub(crate) fn tell(&self, input: Input) {
        // A loop that is gone needs to be told nothing.
        let _ = self.to_loop.send(ToLoop::Tell(input));
    }
}

/// A range read in progress. Dropping it ends it.
pub(crate) struct Pages(Reading);

impl Pages {
    /// The next page; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Answered<RangePage>> {
        let is_last = |answer: &Answer| !matches!(answer, Answer::Page(page) if page.count.is_none());
        let answered = self.0.next(is_last).await?;
        Some(answered.map(|(header, answer)| match answer {
            Answer::Page(page) => (header, page),
            other => unreachable!("a range is answered by pages, not by {other:?}"),
        }))
    }
}

/// A transaction in progress that only reads. Dropping it ends it.
pub(crate) struct TxnPages(Reading);

impl TxnPages {
    /// The next page; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Answered<TxnPage>> {
        let is_last = |answer: &Answer| !matches!(answer, Answer::Txn(page) if !page.done);
        let answered = self.0.next(is_last).await?;
        Some(answered.map(|(header, answer)| match answer {
            Answer::Txn(page) => (header, page),
            other => unreachable!("a transaction is answered by its own pages, not by {other:?}"),
        }))
    }
}

/// A read that was asked for or soon will be. Dropping it before its last answer tells the replica to forget it.
struct Reading {
    handle: Handle,
    ticket: Ticket,
    first: Option<(Read, Consistency)>,
    done: bool,
}

impl Reading {
    async fn next(&mut self, is_last: impl Fn(&Answer) -> bool) -> Option<Answered<Answer>> {
        if self.done {
            return None;
        }
        let ticket = self.ticket;
        let input = match self.first.take() {
            Some((read, consistency)) => Input::Read { ticket, read, consistency },
            None => Input::NextPage { ticket },
        };
        let answered = self.handle.ask(ticket, input).await;
        self.done = answered.as_ref().map_or(true, |(_, answer)| is_last(answer));
        Some(answered)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.done && self.first.is_none() {
            self.handle.tell(Input::Forget { ticket: self.ticket });
        }
    }
}

/// The asking half of a watch stream.
pub(crate) struct WatchStream {
    handle: Handle,
    stream: StreamId,
}

impl WatchStream {
    pub(crate) fn send(&self, request: WatchInput) {
        self.handle.tell(Input::Watch { stream: self.stream, request });
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.send(WatchInput::Close);
    }
}
