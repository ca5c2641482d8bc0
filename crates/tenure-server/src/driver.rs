//! The loop: takes what waits, lets the replica take a turn, carries out its effects.
//!
//! One thread owns the replica. What it decides is decided in `tenure-replica`; here inputs are collected, the clock
//! is read after the last of them was taken, and effects go to where they belong.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustc_hash::FxHasher;
use tenure_replica::effect::{Answer, Failure, Header, WatchOutput};
use tenure_replica::input::{StreamId, Ticket, WatchInput};
use tenure_replica::{Effect, Input, Replica};
use tenure_state::command::Alarm;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Monotonic;
use crate::handle::{self, Answered, Delivery, Home, ToLoop};
use crate::metrics::Metrics;
use crate::storage::Storage;

/// One turn takes at most so many inputs, so that it stays short and what is due is not kept waiting by what comes.
const TURN_INPUTS_MAX: usize = 2048;

type ByTicket<V> = HashMap<Ticket, V, BuildHasherDefault<FxHasher>>;
type ByStream<V> = HashMap<StreamId, V, BuildHasherDefault<FxHasher>>;

/// What the loop owns.
pub(crate) struct Driver {
    pub(crate) replica: Replica,
    pub(crate) storage: Arc<Storage>,
    pub(crate) clock: Monotonic,
    pub(crate) inbox: Receiver<ToLoop>,
    pub(crate) metrics: Arc<Metrics>,
    /// A turn that applied something and took longer is logged.
    pub(crate) warning_apply: Duration,
    /// 0: no limit.
    pub(crate) quota_bytes: u64,
    /// Whether the alarm NOSPACE is on, as was last said.
    pub(crate) is_out_of_space: bool,
}

struct Running {
    driver: Driver,
    waiting: ByTicket<(oneshot::Sender<Answered<Answer>>, Option<Home>)>,
    /// The answers of this turn, by where they go. There are as many homes as threads that serve: a handful.
    deliveries: Vec<(Option<Home>, Vec<Delivery>)>,
    streams: ByStream<mpsc::UnboundedSender<WatchOutput>>,
    inputs: Vec<Input>,
    stopping: bool,
}

impl Driver {
    /// Starts the loop on a thread of its own. It ends with [`ToLoop::Stop`], when everything that was decided is
    /// durable and the checkpoint is written.
    pub(crate) fn spawn(self) -> std::io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name("replica".into()).spawn(move || {
            // A panic here is a broken invariant or an entry that cannot be applied: the member must not go on, and
            // nothing of it may answer any more.
            let abort = AbortOnPanic;
            Running {
                driver: self,
                waiting: HashMap::default(),
                deliveries: Vec::new(),
                streams: HashMap::default(),
                inputs: Vec::new(),
                stopping: false,
            }
            .run();
            std::mem::forget(abort);
        })
    }
}

/// Ends the process when the loop panics, also where panics unwind.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        tracing::error!("the replica's loop panicked; this member stops");
        std::process::abort();
    }
}

impl Running {
    fn run(mut self) {
        while !self.stopping {
            self.collect();
            let now = self.driver.clock.now();
            let started = Instant::now();
            let inputs = std::mem::take(&mut self.inputs);
            self.driver.metrics.loop_inputs.observe(inputs.len() as f64);
            let applied = self.driver.replica.state().applied();
            let effects = self.driver.replica.step(now, inputs);
            let applied = self.driver.replica.state().applied() - applied;
            for effect in effects {
                self.carry_out(effect);
            }
            self.deliver();
            self.measure(started.elapsed(), applied);
        }
        for (_, (waiting, _)) in self.waiting.drain() {
            let _ = waiting.send(Err(Failure::Stopped));
        }
        self.streams.clear();
        self.driver.storage.stop();
    }

    /// Says it once when the alarm goes on, and once when it goes off.
    fn tell_of_space(&mut self) {
        let state = self.driver.replica.state();
        let is_out = state.has_alarm(Alarm::NoSpace);
        if std::mem::replace(&mut self.driver.is_out_of_space, is_out) == is_out {
            return;
        }
        let (quota_bytes, logical_bytes) = (self.driver.quota_bytes, state.stats().logical_bytes);
        if is_out {
            tracing::warn!(
                quota_bytes,
                logical_bytes,
                "the alarm NOSPACE is on: writes that need space are refused. To recover, delete keys or raise \
                 --quota-backend-bytes, compact, and then `etcdctl alarm disarm`; a full disk ends its alarm itself"
            );
        } else {
            tracing::warn!(
                quota_bytes,
                logical_bytes,
                "the alarm NOSPACE is off: all writes are taken again"
            );
        }
    }

    fn measure(&mut self, turn: Duration, applied: u64) {
        let metrics = &self.driver.metrics;
        metrics.loop_turn.observe(turn.as_secs_f64());
        if applied == 0 {
            return;
        }
        metrics.apply.observe(turn.as_secs_f64());
        if turn > self.driver.warning_apply {
            metrics.slow_applies.inc();
            tracing::warn!(entries = applied, took = ?turn, "applying what was committed took long");
        }
        self.tell_of_space();
    }

    /// Waits until something comes or the replica wants a turn, then takes what else is there.
    fn collect(&mut self) {
        let deadline = self.driver.replica.next_deadline(self.driver.clock.now());
        match self.driver.inbox.recv_timeout(self.driver.clock.until(deadline)) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => self.stopping = true,
        }
        while self.inputs.len() < TURN_INPUTS_MAX {
            let Ok(message) = self.driver.inbox.try_recv() else { return };
            self.take(message);
        }
    }

    fn take(&mut self, message: ToLoop) {
        match message {
            ToLoop::Ask { ticket, input, answer, home } => {
                self.waiting.insert(ticket, (answer, home));
                self.inputs.push(input);
            }
            ToLoop::Tell(input) => {
                match &input {
                    Input::Watch { stream, request: WatchInput::Close } => drop(self.streams.remove(stream)),
                    Input::Forget { ticket } => drop(self.waiting.remove(ticket)),
                    _ => {}
                }
                self.inputs.push(input);
            }
            ToLoop::OpenWatch { stream, outputs } => {
                self.streams.insert(stream, outputs);
            }
            ToLoop::Stop => self.stopping = true,
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Append(append) => self.driver.storage.append(append),
            Effect::Answer { ticket, header, answer } => self.answer(ticket, header, answer),
            Effect::Watch { stream, output } => {
                if let Some(outputs) = self.streams.get(&stream) {
                    // A stream that is gone says so with its Close.
                    let _ = outputs.send(output);
                }
            }
            Effect::Checkpoint(checkpoint) => self.driver.storage.checkpoint(checkpoint),
            Effect::FlushCheckpoint => self.driver.storage.flush(Box::new(|flushed| {
                if let Err(error) = flushed {
                    tracing::warn!(%error, "the checkpoint could not be written now; it will be tried again");
                }
            })),
            Effect::CutLog { through } => self.driver.storage.cut(through),
        }
    }

    fn answer(&mut self, ticket: Ticket, header: Header, answer: Result<Answer, Failure>) {
        let Some((waiting, home)) = self.waiting.remove(&ticket) else { return };
        let delivery = (waiting, answer.map(|answer| (header, answer)));
        let same = |other: &Option<Home>| match (other, &home) {
            (Some(other), Some(home)) => other.is(home),
            (None, None) => true,
            _ => false,
        };
        match self.deliveries.iter_mut().find(|(other, _)| same(other)) {
            Some((_, batch)) => batch.push(delivery),
            None => self.deliveries.push((home, vec![delivery])),
        }
    }

    /// After the turn, so that each thread is woken once.
    fn deliver(&mut self) {
        for (home, batch) in self.deliveries.drain(..) {
            match home {
                Some(home) => home.send(batch),
                None => handle::deliver(batch),
            }
        }
    }
}
