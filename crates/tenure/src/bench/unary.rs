//! The workloads of single requests: so many in flight, each answered one replaced at once.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anyhow::{Result, bail};
use bytes::Bytes;
use tenure_client::whole_seconds;
use tenure_proto::etcdserverpb::{
    Compare, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    compare::{CompareResult, CompareTarget, TargetUnion},
    kv_client::KvClient,
    lease_client::LeaseClient,
    request_op::Request,
};
use tokio::task::JoinSet;
use tonic::{Status, transport::Channel};

use super::{
    args::{Bench, Data, Load},
    clock,
    keeper::plain_key,
    progress::Progress,
    report::Figures,
    target::Target,
    turns::{Tally, Turn, in_turns},
};

/// Where the keys of these workloads are.
const FAMILY: &str = "keys";

/// So many errors one after another are not bad luck.
const ERRORS_IN_A_ROW_MAX: u64 = 1_000;

/// Revoking uses up what was granted before, so its turns are counted by operations and stay short.
const REVOKED_PER_TURN: u64 = 4_000;

/// What each request is. Each has a number; the same number makes the same request.
#[derive(Debug, Clone)]
pub enum Call {
    Put {
        keys: u64,
        value: Bytes,
    },
    /// `keys` that are there, `span` of them in each answer.
    Read {
        keys: u64,
        span: u64,
        serializable: bool,
    },
    Txn {
        keys: u64,
        value: Bytes,
    },
    Grant {
        ttl: Duration,
    },
    Revoke,
    /// The key that `hold` puts, but for the lease, with numbers that are this much higher.
    PutPlain {
        from: u64,
    },
    /// A key of its own for each lease that was granted.
    Attach {
        keys_per_lease: u64,
    },
}

/// What one request needs; one for each request in flight.
struct Caller {
    target: Rc<Target>,
    kv: KvClient<Channel>,
    lease: LeaseClient<Channel>,
    call: Rc<Call>,
}

impl Caller {
    async fn call(&mut self, number: u64) -> Result<(), Status> {
        let target = &self.target;
        match &*self.call {
            Call::Put { keys, value } => {
                let key = target.key(FAMILY, number % keys);
                self.kv.put(PutRequest { key, value: value.clone(), ..PutRequest::default() }).await?;
            }
            Call::Read { keys, span, serializable } => {
                let first = scattered(number) % (keys - span + 1);
                let range_end = if *span == 1 { Bytes::new() } else { target.key(FAMILY, first + span) };
                let key = target.key(FAMILY, first);
                let request =
                    RangeRequest { key, range_end, serializable: *serializable, ..RangeRequest::default() };
                let answer = self.kv.range(request).await?.into_inner();
                if answer.kvs.len() as u64 != *span {
                    return Err(Status::data_loss(format!("{} of {span} keys came back", answer.kvs.len())));
                }
            }
            Call::Txn { keys, value } => {
                let key = target.key(FAMILY, number % keys);
                let compare = Compare {
                    result: CompareResult::Greater.into(),
                    target: CompareTarget::Create.into(),
                    key: key.clone(),
                    target_union: Some(TargetUnion::CreateRevision(0)),
                    ..Compare::default()
                };
                let put = PutRequest { key, value: value.clone(), ..PutRequest::default() };
                // Written either way: what is measured is a comparison and a put.
                let put = RequestOp { request: Some(Request::RequestPut(put)) };
                let request =
                    TxnRequest { compare: vec![compare], success: vec![put.clone()], failure: vec![put] };
                self.kv.txn(request).await?;
            }
            Call::Grant { ttl } => {
                let id = target.first_lease + number as i64;
                self.lease.lease_grant(LeaseGrantRequest { ttl: whole_seconds(*ttl), id }).await?;
            }
            Call::Revoke => {
                let id = target.first_lease + number as i64;
                self.lease.lease_revoke(LeaseRevokeRequest { id }).await?;
            }
            Call::PutPlain { from } => {
                let (key, value) = plain_key(target, from + number);
                self.kv.put(PutRequest { key, value, ..PutRequest::default() }).await?;
            }
            Call::Attach { keys_per_lease } => {
                let lease = target.first_lease + (number / keys_per_lease) as i64;
                let key = target.key(FAMILY, number);
                self.kv.put(PutRequest { key, lease, ..PutRequest::default() }).await?;
            }
        }
        Ok(())
    }
}

/// Requests of one turn, shared by all that are in flight.
struct Queue {
    next: Cell<u64>,
    end: u64,
    until_ns: u64,
    tally: RefCell<Tally>,
    errors_in_a_row: Cell<u64>,
    progress: Rc<Progress>,
}

/// Does the requests with the numbers from `from` on, until the turn is over. Returns the first number that was not used.
pub async fn call_all(
    target: &Rc<Target>,
    progress: &Rc<Progress>,
    call: &Call,
    from: u64,
    in_flight: u32,
    turn: Turn,
) -> Result<(Tally, u64)> {
    let queue = Rc::new(Queue {
        next: Cell::new(from),
        end: from.saturating_add(turn.count),
        until_ns: clock::now_ns().saturating_add(clock::nanos(turn.duration)),
        tally: RefCell::new(Tally::new()),
        errors_in_a_row: Cell::new(0),
        progress: Rc::clone(progress),
    });
    let call = Rc::new(call.clone());
    let mut workers = JoinSet::new();
    for number in 0..in_flight as usize {
        let caller = Caller {
            target: Rc::clone(target),
            kv: target.kv(number),
            lease: target.lease(number),
            call: Rc::clone(&call),
        };
        workers.spawn_local(work(caller, Rc::clone(&queue)));
    }
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    let next = queue.next.get();
    let tally = queue.tally.replace(Tally::new());
    if queue.errors_in_a_row.get() >= ERRORS_IN_A_ROW_MAX {
        bail!("{} at {}: {}", target.name, target.endpoint, tally.first_error.unwrap_or_default());
    }
    Ok((tally, next))
}

async fn work(mut caller: Caller, queue: Rc<Queue>) {
    let mut begun = clock::now_ns();
    while queue.next.get() < queue.end
        && begun < queue.until_ns
        && queue.errors_in_a_row.get() < ERRORS_IN_A_ROW_MAX
    {
        let number = queue.next.get();
        queue.next.set(number + 1);
        let result = caller.call(number).await;
        let now = clock::now_ns();
        match result {
            Ok(()) => {
                queue.tally.borrow_mut().done(now - begun);
                queue.errors_in_a_row.set(0);
            }
            Err(status) => {
                queue.tally.borrow_mut().failed(status.message());
                queue.errors_in_a_row.set(queue.errors_in_a_row.get() + 1);
            }
        }
        queue.progress.add(1);
        begun = now;
    }
}

/// Spreads numbers over all 64 bits, always the same way.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Not all the same byte: a store that compresses would look better than it is.
pub fn value(size: u32) -> Bytes {
    (0..u64::from(size)).map(|at| b'!' + (scattered(at) % 90) as u8).collect::<Vec<u8>>().into()
}

fn what(bench: &Bench) -> Option<(&Load, Option<&Data>, Call)> {
    Some(match bench {
        Bench::Put(it) => {
            let call = Call::Put { keys: it.data.keys, value: value(it.data.value_size) };
            (&it.load, None, call)
        }
        Bench::Get(it) => {
            let call = Call::Read { keys: it.data.keys, span: 1, serializable: it.serializable };
            (&it.load, Some(&it.data), call)
        }
        Bench::Range(it) => {
            let (keys, span) = (it.data.keys.max(it.span), it.span);
            let call = Call::Read { keys, span, serializable: it.serializable };
            (&it.load, Some(&it.data), call)
        }
        Bench::Txn(it) => {
            let call = Call::Txn { keys: it.data.keys, value: value(it.data.value_size) };
            (&it.load, None, call)
        }
        Bench::Grant(it) => (&it.load, None, Call::Grant { ttl: it.ttl }),
        Bench::Revoke(it) => (&it.load, None, Call::Revoke),
        _ => return None,
    })
}

/// Runs a workload of single requests.
pub async fn run(bench: &Bench, targets: &[Rc<Target>], progress: &Rc<Progress>) -> Result<Vec<Figures>> {
    let Some((load, filled, call)) = what(bench) else { bail!("not a workload of single requests") };
    if let (Some(data), Call::Read { keys, .. }) = (filled, &call) {
        for target in targets {
            progress.say(format!("write {keys} keys to {}", target.name));
            let put = Call::Put { keys: *keys, value: value(data.value_size) };
            fill(target, progress, &put, 0, *keys, load.in_flight).await?;
        }
    }
    let mut count = load.total.map_or(u64::MAX, |total| total.div_ceil(u64::from(load.rounds)));
    if matches!(call, Call::Revoke) {
        count = count.min(REVOKED_PER_TURN);
    }
    let turn = Turn { duration: load.duration / load.rounds, count };
    let next: Vec<Cell<u64>> = targets.iter().map(|_| Cell::new(0)).collect();
    let measured = in_turns(
        targets,
        progress,
        load.rounds,
        turn,
        async |side, turn: Turn| {
            let Bench::Revoke(revoke) = bench else { return Ok(()) };
            let (target, from) = (&targets[side], next[side].get());
            let grant = Call::Grant { ttl: Duration::from_secs(600) };
            fill(target, progress, &grant, from, turn.count, load.in_flight).await?;
            let keys_per_lease = u64::from(revoke.attached_keys);
            let attach = Call::Attach { keys_per_lease };
            fill(
                target,
                progress,
                &attach,
                from * keys_per_lease,
                turn.count * keys_per_lease,
                load.in_flight,
            )
            .await
        },
        async |side, turn| {
            let from = next[side].get();
            let (tally, end) = call_all(&targets[side], progress, &call, from, load.in_flight, turn).await?;
            // What a turn of revoking leaves over is not used again: the next one has granted its own.
            let end = if matches!(call, Call::Revoke) { from + turn.count } else { end };
            next[side].set(end);
            Ok(tally)
        },
    )
    .await?;
    let mut all = Vec::new();
    for (side, (target, measured)) in targets.iter().zip(&measured).enumerate() {
        all.push(measured.figures(target)?);
        if matches!(call, Call::Grant { .. }) && !load.shared.keep {
            progress.say(format!("revoke the leases on {}", target.name));
            fill(target, progress, &Call::Revoke, 0, next[side].get(), load.in_flight).await?;
        }
    }
    for (measured, target) in measured.iter().zip(targets) {
        if let Some(why) = &measured.tally.first_error {
            crate::print::warn(&format!(
                "{}: {} errors, the first: {why}",
                target.name, measured.tally.errors
            ));
        }
    }
    Ok(all)
}

/// Does exactly these requests, however long it takes.
pub async fn fill(
    target: &Rc<Target>,
    progress: &Rc<Progress>,
    call: &Call,
    from: u64,
    count: u64,
    in_flight: u32,
) -> Result<()> {
    let turn = Turn { duration: Duration::from_secs(24 * 3600), count };
    let (tally, _) = call_all(target, progress, call, from, in_flight, turn).await?;
    match tally.first_error {
        Some(why) => bail!("{} at {}: {} requests failed: {why}", target.name, target.endpoint, tally.errors),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_size_that_was_asked_for() {
        assert_eq!(value(0).len(), 0);
        assert_eq!(value(256).len(), 256);
        assert!(value(256).iter().any(|&byte| byte != value(256)[0]));
    }

    #[test]
    fn reads_are_spread() {
        let mut seen: Vec<u64> = (0..1_000).map(|number| scattered(number) % 100).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 95, "{}", seen.len());
    }
}
