//! Renewals as fast as they are answered. Streams stay open over all turns, as a client's would; each keeps its share of the renewals in
//! flight.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use anyhow::{Result, bail};
use tenure_proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{
    args, clock,
    progress::Progress,
    report::Figures,
    target::Target,
    turns::{Tally, Turn, in_turns},
    unary::{Call, fill},
};

/// One stream of renewals.
pub struct Stream {
    pub requests: mpsc::Sender<LeaseKeepAliveRequest>,
    pub answers: Streaming<LeaseKeepAliveResponse>,
}

impl Stream {
    /// Opens a stream by renewing `first`: etcd says nothing, not even that there is a stream, before the first answer. That answer is
    /// still to be read. `queue_len_max` bounds the renewals that were not sent yet.
    pub async fn open(target: &Target, number: usize, first: i64, queue_len_max: usize) -> Result<Stream> {
        let (requests, receiver) = mpsc::channel(queue_len_max.max(1));
        requests.send(LeaseKeepAliveRequest { id: first }).await?;
        let answers =
            target.lease(number).lease_keep_alive(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Stream { requests, answers })
    }
}

/// A stream with the leases that it renews, one after another and round again.
struct Renewer {
    stream: Stream,
    leases: std::ops::Range<i64>,
    next: i64,
    window: usize,
    /// What was sent and not answered, with the time of sending. Answers come in the order of the requests.
    in_flight: VecDeque<(i64, u64)>,
}

impl Renewer {
    async fn open(
        target: &Target,
        number: usize,
        leases: std::ops::Range<i64>,
        window: usize,
    ) -> Result<Renewer> {
        let stream = Stream::open(target, number, leases.start, window).await?;
        let in_flight = VecDeque::from([(leases.start, clock::now_ns())]);
        let next = leases.start;
        let mut renewer = Renewer { stream, leases, next, window, in_flight };
        renewer.answer(&mut Tally::new()).await?;
        Ok(renewer)
    }

    async fn send(&mut self) -> Result<()> {
        let id = self.next;
        self.next = if id + 1 < self.leases.end { id + 1 } else { self.leases.start };
        self.in_flight.push_back((id, clock::now_ns()));
        self.stream.requests.send(LeaseKeepAliveRequest { id }).await?;
        Ok(())
    }

    async fn answer(&mut self, tally: &mut Tally) -> Result<()> {
        let Some(answer) = self.stream.answers.message().await? else { bail!("the server ended a stream") };
        let at = self.in_flight.iter().position(|(id, _)| *id == answer.id);
        let Some((_, sent)) = at.and_then(|at| self.in_flight.remove(at)) else {
            bail!("a renewal of {:x} was answered that was not asked for", answer.id)
        };
        if answer.ttl > 0 {
            tally.done(clock::now_ns() - sent);
        } else {
            tally.failed("a lease was lost");
        }
        Ok(())
    }

    async fn turn(&mut self, count: u64, until_ns: u64, progress: &Progress) -> Result<Tally> {
        let mut tally = Tally::new();
        let mut sent = 0;
        loop {
            while self.in_flight.len() < self.window && sent < count && clock::now_ns() < until_ns {
                self.send().await?;
                sent += 1;
            }
            if self.in_flight.is_empty() {
                return Ok(tally);
            }
            self.answer(&mut tally).await?;
            progress.add(1);
        }
    }
}

pub async fn run(
    bench: &args::KeepAlive,
    targets: &[Rc<Target>],
    progress: &Rc<Progress>,
) -> Result<Vec<Figures>> {
    let load = &bench.load;
    let leases = u64::from(bench.leases.max(u32::from(bench.streams)));
    let streams = u64::from(bench.streams);
    // Long enough that none ends while another server has its turn, and short enough to be gone soon if this program is killed.
    let grant = Call::Grant { ttl: load.duration * 4 + Duration::from_secs(300) };
    let mut renewers = Vec::new();
    for target in targets {
        progress.say(format!("grant {leases} leases on {}", target.name));
        fill(target, progress, &grant, 0, leases, load.in_flight).await?;
        let mut of_target = Vec::new();
        for number in 0..streams {
            let ids = |number: u64| target.first_lease + (leases * number / streams) as i64;
            let window = (load.in_flight as usize / streams as usize).max(1);
            let renewer =
                Renewer::open(target, number as usize, ids(number)..ids(number + 1), window).await?;
            of_target.push(Some(renewer));
        }
        renewers.push(RefCell::new(of_target));
    }
    let count = load.total.map_or(u64::MAX, |total| total.div_ceil(u64::from(load.rounds)));
    let turn = Turn { duration: load.duration / load.rounds, count };
    let measured = in_turns(
        targets,
        progress,
        load.rounds,
        turn,
        async |_, _| Ok(()),
        async |side, turn: Turn| {
            let until_ns = clock::now_ns() + clock::nanos(turn.duration);
            let mut turns = JoinSet::new();
            for (number, slot) in renewers[side].borrow_mut().iter_mut().enumerate() {
                let mut renewer = slot.take().expect("it was put back after the last turn");
                let progress = Rc::clone(progress);
                let count = turn.count.div_ceil(streams);
                turns.spawn_local(async move {
                    let tally = renewer.turn(count, until_ns, &progress).await;
                    (number, renewer, tally)
                });
            }
            let mut all = Tally::new();
            while let Some(ended) = turns.join_next().await {
                let (number, renewer, tally) = ended?;
                renewers[side].borrow_mut()[number] = Some(renewer);
                all.add(tally?);
            }
            Ok(all)
        },
    )
    .await?;
    drop(renewers);
    let mut all = Vec::new();
    for (target, measured) in targets.iter().zip(&measured) {
        let mut figures = measured.figures(target)?;
        figures.set("leases", leases as f64);
        all.push(figures);
    }
    if !load.shared.keep {
        for target in targets {
            progress.say(format!("revoke the leases on {}", target.name));
            fill(target, progress, &Call::Revoke, 0, leases, load.in_flight).await?;
        }
    }
    Ok(all)
}
