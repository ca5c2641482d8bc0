//! Replies, events and rows as lines that people read.

use tenure_state::applied::{Change, LeaseRow, OpReply, PutReply, RangeReply, Reply, Shown, TxnReply};
use tenure_state::ids::Nanos;
use tenure_state::record::{Event, Record};

/// `a=1 v1 created@2 @2.0 lease=7`
pub fn record(record: &Record, shown: Shown) -> String {
    let mut line = text(&record.key);
    if shown == Shown::All {
        line += &format!("={}", text(&record.value));
    }
    line += &format!(" v{} created@{} @{}", record.version, record.create, record.at);
    if shown != Shown::KeyOnly && !record.lease.is_none() {
        line += &format!(" lease={}", record.lease.0);
    }
    line
}

pub fn event(event: &Event) -> String {
    let prev = match &event.prev {
        Some(prev) => format!("was {}", text(&prev.value)),
        None => "no prev".to_string(),
    };
    if event.record.is_tombstone() {
        format!("event DELETE {} @{} ({prev})", text(&event.record.key), event.record.at)
    } else {
        format!("event PUT {} ({prev})", record(&event.record, Shown::All))
    }
}

/// Records are not printed: each stands in an event.
pub fn change(change: &Change) -> Option<String> {
    match change {
        Change::Record(_) => None,
        Change::RecordGone(at) => Some(format!("row {at} gone")),
        Change::Lease(row) => Some(format!("row {}", lease(row))),
        Change::LeaseGone(id) => Some(format!("row lease {} gone", id.0)),
    }
}

pub fn lease(row: &LeaseRow) -> String {
    let mut line = format!("lease {} ttl={} deadline={}", row.id.0, time(row.ttl), time(row.deadline));
    if row.base != row.deadline {
        line += &format!(" base={}", time(row.base));
    }
    if !row.parent.is_none() {
        line += &format!(" parent={} depth={}", row.parent.0, row.depth);
    }
    line
}

pub fn reply(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Nothing | Reply::TakeOver => vec!["ok".to_string()],
        Reply::Put(reply) => put(reply),
        Reply::DeleteRange(reply) => {
            let mut lines = vec![format!("ok rev={} deleted={}", reply.revision, reply.deleted)];
            lines.extend(reply.prevs.iter().map(|prev| format!("prev {}", record(prev, Shown::All))));
            lines
        }
        Reply::Txn(reply) => txn(reply),
        Reply::Compact { revision } | Reply::Revoke { revision } => vec![format!("ok rev={revision}")],
        Reply::Scrub { more } => vec![if *more { "ok, more is left" } else { "ok" }.to_string()],
        Reply::Grant { id, ttl, revision } => {
            vec![format!("ok rev={revision} lease {} ttl={}", id.0, time(*ttl))]
        }
        Reply::LeaseStep(reply) => {
            let mut lines = vec![if reply.more { "ok, more is due" } else { "ok" }.to_string()];
            lines.extend(reply.renewed.iter().map(|renewed| match renewed.remaining {
                Some(remaining) => format!("renewed {}: {} left", renewed.id.0, time(remaining)),
                None => format!("renewed {}: not found", renewed.id.0),
            }));
            let ended = reply.ended.iter();
            lines.extend(ended.map(|(id, deadline)| format!("ended {}, due at {}", id.0, time(*deadline))));
            lines
        }
        Reply::Alarms { alarms, revision } => {
            let mut lines = vec![format!("ok rev={revision}")];
            lines.extend(alarms.iter().map(|(member, alarm)| format!("alarm {alarm:?} of {member}")));
            lines
        }
    }
}

fn put(reply: &PutReply) -> Vec<String> {
    let mut lines = vec![format!("ok rev={}", reply.revision)];
    lines.extend(reply.prev.iter().map(|prev| format!("prev {}", record(prev, Shown::All))));
    lines
}

pub fn range(reply: &RangeReply) -> Vec<String> {
    let more = if reply.more { " more" } else { "" };
    let mut lines = vec![format!("ok rev={} count={}{more}", reply.revision, reply.count)];
    lines.extend(reply.records.iter().map(|found| record(found, reply.shown)));
    lines
}

pub fn txn(reply: &TxnReply) -> Vec<String> {
    let taken = if reply.succeeded { "succeeded" } else { "failed" };
    let mut lines = vec![format!("{taken} rev={}", reply.revision)];
    for response in &reply.responses {
        let (name, answer) = match response {
            OpReply::Range(reply) => ("get", range(reply)),
            OpReply::Put(reply) => ("put", put(reply)),
            OpReply::DeleteRange(found) => ("del", self::reply(&Reply::DeleteRange(found.clone()))),
            OpReply::Txn(reply) => ("txn", txn(reply)),
        };
        let mut answer = answer.into_iter();
        lines.push(format!("  {name}: {}", answer.next().expect("every answer has a first line")));
        lines.extend(answer.map(|line| format!("    {line}")));
    }
    lines
}

pub fn text(bytes: &[u8]) -> String {
    if bytes.is_empty() { "''".to_string() } else { String::from_utf8_lossy(bytes).replace('\0', "\\0") }
}

pub fn time(time: Nanos) -> String {
    if time.0.is_multiple_of(1_000_000_000) {
        format!("{}s", time.as_secs())
    } else {
        format!("{}ms", time.as_millis())
    }
}
