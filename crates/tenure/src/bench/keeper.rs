//! Leases with one key each, held by one driver: what `hold` and `expire` have in common. It notes for each lease when its last renewal
//! was sent and answered, and when its key was seen to go, so that lateness and earliness can be told for each alone.

use std::{
    cell::{Cell, RefCell},
    collections::{HashSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tenure_client::whole_seconds;
use tenure_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, PutRequest, WatchCreateRequest,
    WatchRequest, WatchResponse, watch_create_request::FilterType, watch_request::RequestUnion,
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{
    clock,
    keepalive::Stream,
    progress::Progress,
    report::{Figures, ms},
    stats::Histogram,
    target::Target,
    unary::value,
};

const FAMILY: &str = "keyed";
const VALUE_BYTES: u32 = 16;

/// Grants in flight while the leases are made.
const GRANTS_IN_FLIGHT: usize = 64;

/// How finely renewals are spread: the driver wakes up this often and sends what is due.
const TICK: Duration = Duration::from_millis(1);

/// Renewals that a stream may owe before the driver waits for it.
const QUEUE_LEN_MAX: usize = 1024;

/// What is known of one lease. 0 is "not yet".
#[derive(Debug, Default)]
struct Lease {
    sent_ns: Cell<u64>,
    /// When the renewal (or grant) was sent that was answered last.
    acked_ns: Cell<u64>,
    answered_ns: Cell<u64>,
    ended_ns: Cell<u64>,
    lost: Cell<bool>,
}

pub struct Keeper {
    target: Rc<Target>,
    leases: Vec<Lease>,
    ttl_ns: Cell<u64>,
    /// Due times and numbers, soonest first: every lease is renewed after the same time, so what is put at the end is due last.
    due: RefCell<VecDeque<(u64, u32)>>,
    streams: RefCell<Vec<mpsc::Sender<LeaseKeepAliveRequest>>>,
    holding: Cell<bool>,
    renewals: Cell<u64>,
    unanswered: Cell<u64>,
    behind_max_ns: Cell<u64>,
    ended: Cell<u32>,
    revisions: RefCell<HashSet<i64>>,
    /// What the tasks in the background could not go on from.
    failure: RefCell<Option<String>>,
    progress: Rc<Progress>,
}

impl Keeper {
    /// Starts the watch that sees keys go, and the driver that renews whatever has been granted.
    pub async fn start(target: &Rc<Target>, progress: &Rc<Progress>, leases: u32) -> Result<Rc<Keeper>> {
        let keeper = Rc::new(Keeper {
            target: Rc::clone(target),
            leases: (0..leases).map(|_| Lease::default()).collect(),
            ttl_ns: Cell::new(0),
            due: RefCell::default(),
            streams: RefCell::default(),
            holding: Cell::new(true),
            renewals: Cell::new(0),
            unanswered: Cell::new(0),
            behind_max_ns: Cell::new(0),
            ended: Cell::new(0),
            revisions: RefCell::default(),
            failure: RefCell::default(),
            progress: Rc::clone(progress),
        });
        let (key, range_end) = target.family(FAMILY);
        let filters = vec![FilterType::Noput.into()];
        let create = WatchCreateRequest { key, range_end, filters, ..WatchCreateRequest::default() };
        let (requests, receiver) = mpsc::channel(1);
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        let mut events = target.watch(0).watch(ReceiverStream::new(receiver)).await?.into_inner();
        let created = events.message().await?.context("the server ended the watch")?;
        if !created.created || created.canceled {
            bail!("the watch was refused: {}", created.cancel_reason);
        }
        let watching = Rc::clone(&keeper);
        tokio::task::spawn_local(async move {
            // The stream lives as long as somebody may still send on it.
            let _requests = requests;
            let ended = watching.see_ends(&mut events).await;
            watching.fail_with(ended);
        });
        Ok(keeper)
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns.get())
    }

    pub fn renewals(&self) -> u64 {
        self.renewals.get()
    }

    pub fn ended(&self) -> u32 {
        self.ended.get()
    }

    fn period_ns(&self) -> u64 {
        self.ttl_ns.get() / 3
    }

    fn id(&self, number: u32) -> i64 {
        self.target.first_lease + i64::from(number)
    }

    fn fail_with(&self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert_with(|| format!("{error:#}"));
        }
    }

    /// Errors with what went wrong in the background, if something did.
    pub fn check(&self) -> Result<()> {
        match &*self.failure.borrow() {
            Some(why) => bail!("{} at {}: {why}", self.target.name, self.target.endpoint),
            None => Ok(()),
        }
    }

    async fn see_ends(&self, events: &mut Streaming<WatchResponse>) -> Result<()> {
        while let Some(answer) = events.message().await? {
            let now = clock::now_ns();
            if answer.canceled {
                bail!("the watch was cancelled: {}", answer.cancel_reason);
            }
            for kv in answer.events.into_iter().filter_map(|event| event.kv) {
                let number =
                    self.target.number(FAMILY, &kv.key).and_then(|number| usize::try_from(number).ok());
                let Some(lease) = number.and_then(|number| self.leases.get(number)) else { continue };
                if lease.ended_ns.replace(now) == 0 {
                    self.ended.set(self.ended.get() + 1);
                    self.progress.add(1);
                }
                self.revisions.borrow_mut().insert(kv.mod_revision);
                if self.holding.get() {
                    lease.lost.set(true);
                }
            }
        }
        bail!("the server ended the watch")
    }

    /// Grants one lease and puts its key.
    pub async fn grant(&self, number: u32, ttl: Duration) -> Result<()> {
        let (target, connection) = (&self.target, number as usize);
        let request = LeaseGrantRequest { ttl: whole_seconds(ttl), id: self.id(number) };
        let sent = clock::now_ns();
        let granted = target.lease(connection).lease_grant(request).await?.into_inner();
        let lease = &self.leases[number as usize];
        lease.acked_ns.set(sent);
        lease.answered_ns.set(clock::now_ns());
        let ttl_ns = clock::nanos(Duration::from_secs(granted.ttl.unsigned_abs()));
        self.ttl_ns.set(self.ttl_ns.get().max(ttl_ns));
        let key = target.key(FAMILY, u64::from(number));
        let request =
            PutRequest { key, value: value(VALUE_BYTES), lease: granted.id, ..PutRequest::default() };
        target.kv(connection).put(request).await?;
        self.progress.add(1);
        Ok(())
    }

    /// Grants all, and renews those that are there already.
    pub async fn grant_all(self: &Rc<Keeper>, ttl: Duration, streams: u16) -> Result<()> {
        self.grant(0, ttl).await?;
        self.open_streams(streams).await?;
        self.due.borrow_mut().push_back((clock::now_ns() + self.period_ns(), 0));
        let driver = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let ended = driver.drive().await;
            driver.fail_with(ended);
        });
        let next = Rc::new(Cell::new(1));
        let mut workers = JoinSet::new();
        for _ in 0..GRANTS_IN_FLIGHT {
            let (keeper, next) = (Rc::clone(self), Rc::clone(&next));
            workers.spawn_local(async move {
                while (next.get() as usize) < keeper.leases.len() {
                    let number = next.replace(next.get() + 1);
                    keeper.grant(number, ttl).await?;
                    keeper.due.borrow_mut().push_back((clock::now_ns() + keeper.period_ns(), number));
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended??;
        }
        self.check()
    }

    async fn open_streams(self: &Rc<Keeper>, streams: u16) -> Result<()> {
        for number in 0..usize::from(streams) {
            let Stream { requests, mut answers } =
                Stream::open(&self.target, number, self.id(0), QUEUE_LEN_MAX).await?;
            self.streams.borrow_mut().push(requests);
            let reader = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let ended = reader.read(&mut answers).await;
                reader.fail_with(ended);
            });
        }
        Ok(())
    }

    async fn read(&self, answers: &mut Streaming<LeaseKeepAliveResponse>) -> Result<()> {
        while let Some(answer) = answers.message().await? {
            let number = usize::try_from(answer.id - self.target.first_lease).ok();
            let Some(lease) = number.and_then(|number| self.leases.get(number)) else {
                bail!("a renewal of {:x} was answered that was not asked for", answer.id)
            };
            if answer.ttl > 0 {
                let sent = lease.sent_ns.replace(0);
                if sent != 0 {
                    lease.acked_ns.set(sent);
                }
                lease.answered_ns.set(clock::now_ns());
                self.renewals.set(self.renewals.get() + 1);
                self.progress.add(1);
            } else {
                lease.lost.set(true);
            }
        }
        Ok(())
    }

    async fn renew(&self, number: u32) -> Result<()> {
        let lease = &self.leases[number as usize];
        // Of two on their way the first counts: which one an answer belongs to cannot be told.
        if lease.sent_ns.get() == 0 {
            lease.sent_ns.set(clock::now_ns());
        }
        let stream = {
            let streams = self.streams.borrow();
            streams[number as usize % streams.len()].clone()
        };
        stream.send(LeaseKeepAliveRequest { id: self.id(number) }).await.context("a stream ended")?;
        Ok(())
    }

    /// Renews what is due, tick by tick, until holding ends.
    async fn drive(&self) -> Result<()> {
        while self.holding.get() {
            loop {
                let now = clock::now_ns();
                let front = self.due.borrow().front().copied();
                let Some((due_ns, number)) = front.filter(|(due_ns, _)| *due_ns <= now) else { break };
                self.due.borrow_mut().pop_front();
                let lease = &self.leases[number as usize];
                if lease.lost.get() {
                    continue;
                }
                self.behind_max_ns.set(self.behind_max_ns.get().max(now - due_ns));
                if lease.sent_ns.get() != 0 {
                    self.unanswered.set(self.unanswered.get() + 1);
                }
                self.renew(number).await?;
                self.due.borrow_mut().push_back((due_ns + self.period_ns(), number));
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    /// Spreads the renewals evenly from now on, however the grants came, and forgets what was counted before. No lease waits longer
    /// than two thirds of its time to live for this.
    pub fn spread_evenly(&self) {
        let (now, period_ns, count) = (clock::now_ns(), self.period_ns(), self.leases.len() as u64);
        let due = |number: u32| (now + u64::from(number) * period_ns / count, number);
        *self.due.borrow_mut() = (0..self.leases.len() as u32).map(due).collect();
        self.behind_max_ns.set(0);
        self.unanswered.set(0);
    }

    /// From now on leases may end.
    pub fn let_go(&self) {
        self.holding.set(false);
        self.due.borrow_mut().clear();
    }

    /// Stops renewing and waits until nothing is on its way any more, at most as long as a lease lives.
    pub async fn stop(&self) -> Result<()> {
        self.let_go();
        self.wait(self.ttl(), |keeper| keeper.leases.iter().all(|lease| lease.sent_ns.get() == 0)).await?;
        Ok(())
    }

    /// Renews all leases as fast as they are answered, so that all are due together.
    pub async fn renew_all(&self) -> Result<()> {
        for number in 0..self.leases.len() as u32 {
            self.renew(number).await?;
        }
        let answered = self
            .wait(self.ttl(), |keeper| keeper.leases.iter().all(|lease| lease.sent_ns.get() == 0))
            .await?;
        if !answered {
            bail!(
                "{} did not answer {} renewals within their time to live",
                self.target.name,
                self.leases.len()
            );
        }
        Ok(())
    }

    /// Waits for the last lease to end, `wait` at most.
    pub async fn wait_for_ends(&self, wait: Duration) -> Result<()> {
        self.wait(wait, |keeper| keeper.ended.get() as usize == keeper.leases.len()).await?;
        Ok(())
    }

    /// Whether it came true in time.
    async fn wait(&self, wait: Duration, until: impl Fn(&Keeper) -> bool) -> Result<bool> {
        let end_ns = clock::now_ns() + clock::nanos(wait);
        loop {
            self.check()?;
            if until(self) {
                return Ok(true);
            }
            if clock::now_ns() >= end_ns {
                return Ok(false);
            }
            tokio::time::sleep(TICK * 5).await;
        }
    }

    /// The times when the first and the last lease are due, by the answers to their last renewals.
    pub fn due_ns(&self) -> (u64, u64) {
        let answered = || self.leases.iter().map(|lease| lease.answered_ns.get());
        let ttl_ns = self.ttl_ns.get();
        (answered().min().unwrap_or(0) + ttl_ns, answered().max().unwrap_or(0) + ttl_ns)
    }

    pub fn last_end_ns(&self) -> u64 {
        self.leases.iter().map(|lease| lease.ended_ns.get()).max().unwrap_or(0)
    }

    pub fn holding_figures(&self, figures: &mut Figures) {
        figures.set("leases", self.leases.len() as f64);
        figures.set("granted_ttl_s", self.ttl().as_secs_f64());
        figures.set("lost", self.leases.iter().filter(|lease| lease.lost.get()).count() as f64);
        figures.set("unanswered", self.unanswered.get() as f64);
        figures.set("behind_max_ms", ms(self.behind_max_ns.get()));
    }

    /// How the leases ended that were not lost before.
    pub fn ending_figures(&self, figures: &mut Figures) {
        let ttl_ns = self.ttl_ns.get();
        let (mut early, mut ended) = (0_u32, 0_u32);
        let mut late = Histogram::new();
        let held = || self.leases.iter().filter(|lease| !lease.lost.get());
        for lease in held().filter(|lease| lease.ended_ns.get() != 0) {
            ended += 1;
            // The server may count from the moment when the renewal was sent, but from no earlier one.
            if lease.ended_ns.get() < lease.acked_ns.get() + ttl_ns {
                early += 1;
            }
            late.record(lease.ended_ns.get().saturating_sub(lease.answered_ns.get() + ttl_ns));
        }
        figures.set("granted_ttl_s", self.ttl().as_secs_f64());
        figures.set("leases", self.leases.len() as f64);
        figures.set("ended", f64::from(ended));
        figures.set("not_ended", held().count() as f64 - f64::from(ended));
        figures.set("early", f64::from(early));
        figures.set("revisions", self.revisions.borrow().len() as f64);
        if ended > 0 {
            figures.set("late_p50_ms", ms(late.percentile(0.5)));
            figures.set("late_p99_ms", ms(late.percentile(0.99)));
            figures.set("late_max_ms", ms(late.max()));
        }
    }
}

/// The same keys, but for the lease.
pub fn plain_key(target: &Target, number: u64) -> (Bytes, Bytes) {
    (target.key("plain", number), value(VALUE_BYTES))
}
