//! Many watchers of one prefix, and puts into it at a steady rate. Each put is an event for every watcher; its value says when it was
//! sent, so that each event's way can be timed.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::{BufMut, BytesMut};
use tenure_proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{
    args, clock,
    progress::Progress,
    report::Figures,
    target::Target,
    turns::{Tally, Turn, in_turns},
};

const FAMILY: &str = "watched";

/// How long events may be on their way after the last put of a turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the watchers of one server have seen in the present turn.
struct Seen {
    tally: RefCell<Tally>,
    failure: RefCell<Option<String>>,
    progress: Rc<Progress>,
}

impl Seen {
    async fn read(&self, answers: &mut Streaming<WatchResponse>) -> Result<()> {
        while let Some(answer) = answers.message().await? {
            let now = clock::now_ns();
            if answer.canceled {
                bail!("a watch was cancelled: {}", answer.cancel_reason);
            }
            let mut tally = self.tally.borrow_mut();
            for kv in answer.events.iter().filter_map(|event| event.kv.as_ref()) {
                let Some(sent) = kv.value.first_chunk() else { bail!("a value came back short") };
                tally.done(now.saturating_sub(u64::from_be_bytes(*sent)));
            }
            self.progress.add(answer.events.len() as u64);
        }
        bail!("the server ended a watch")
    }
}

/// Opens the streams and waits until every watcher is there.
async fn watch(bench: &args::Watch, target: &Target, seen: &Rc<Seen>) -> Result<()> {
    let streams = u32::from(bench.streams).min(bench.watchers);
    for stream in 0..streams {
        let count = (bench.watchers * (stream + 1) / streams - bench.watchers * stream / streams) as usize;
        let (requests, receiver) = mpsc::channel(count.max(1));
        let (key, range_end) = target.family(FAMILY);
        let create = WatchCreateRequest { key, range_end, ..WatchCreateRequest::default() };
        for _ in 0..count {
            let union = RequestUnion::CreateRequest(create.clone());
            requests.send(WatchRequest { request_union: Some(union) }).await?;
        }
        let mut client = target.watch(stream as usize);
        let mut answers = client.watch(ReceiverStream::new(receiver)).await?.into_inner();
        for _ in 0..count {
            let answer = answers.message().await?.context("the server ended a watch")?;
            if !answer.created || answer.canceled {
                bail!("a watch was refused: {}", answer.cancel_reason);
            }
        }
        let seen = Rc::clone(seen);
        tokio::task::spawn_local(async move {
            // The stream lives as long as somebody may still send on it.
            let _requests = requests;
            if let Err(error) = seen.read(&mut answers).await {
                seen.failure.borrow_mut().get_or_insert_with(|| format!("{error:#}"));
            }
        });
    }
    Ok(())
}

/// Puts at the rate that was asked for, then waits for the events.
async fn put_at_rate(bench: &args::Watch, target: &Rc<Target>, seen: &Seen, turn: Turn) -> Result<Tally> {
    let interval_ns = 1_000_000_000 * u64::from(bench.watchers) / u64::from(bench.events);
    let (begun, failed) = (clock::now_ns(), Rc::new(Cell::new(0_u64)));
    let end = begun + clock::nanos(turn.duration);
    let (mut due, mut puts) = (begun, JoinSet::new());
    let mut count = 0_u64;
    while due < end {
        clock::sleep_until(due).await;
        let mut value = BytesMut::with_capacity(bench.value_size as usize);
        value.put_u64(clock::now_ns());
        value.resize(bench.value_size as usize, b'v');
        let request = PutRequest {
            key: target.key(FAMILY, count % 1_000),
            value: value.freeze(),
            ..PutRequest::default()
        };
        let (mut kv, failed) = (target.kv(count as usize), Rc::clone(&failed));
        puts.spawn_local(async move {
            if kv.put(request).await.is_err() {
                failed.set(failed.get() + 1);
            }
        });
        while puts.try_join_next().is_some() {}
        count += 1;
        due += interval_ns;
    }
    while puts.join_next().await.is_some() {}
    let expected = (count - failed.get()) * u64::from(bench.watchers);
    let patience_end = clock::now_ns() + clock::nanos(PATIENCE);
    while seen.tally.borrow().ops < expected && clock::now_ns() < patience_end {
        if let Some(why) = &*seen.failure.borrow() {
            bail!("{} at {}: {why}", target.name, target.endpoint);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut tally = seen.tally.replace(Tally::new());
    for _ in 0..failed.get() {
        tally.failed("a put failed");
    }
    for _ in tally.ops..expected {
        tally.failed("an event did not come");
    }
    Ok(tally)
}

pub async fn run(
    bench: &args::Watch,
    targets: &[Rc<Target>],
    progress: &Rc<Progress>,
) -> Result<Vec<Figures>> {
    let mut seen = Vec::new();
    for target in targets {
        progress.say(format!("{}: start {} watchers", target.name, bench.watchers));
        let of_target = Rc::new(Seen {
            tally: RefCell::new(Tally::new()),
            failure: RefCell::default(),
            progress: Rc::clone(progress),
        });
        watch(bench, target, &of_target).await?;
        seen.push(of_target);
    }
    let turn = Turn { duration: bench.duration / bench.rounds, count: u64::MAX };
    let measured = in_turns(
        targets,
        progress,
        bench.rounds,
        turn,
        async |_, _| Ok(()),
        async |side, turn| put_at_rate(bench, &targets[side], &seen[side], turn).await,
    )
    .await?;
    targets.iter().zip(&measured).map(|(target, measured)| measured.figures(target)).collect()
}
