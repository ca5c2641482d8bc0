//! The words of the scripts, read into commands.
//!
//! ```text
//! put KEY VALUE|keep-value [lease=ID|keep-lease] [prev]      del RANGE [prev]
//! get RANGE [rev=N] [limit=N] [sort=TARGET[:asc|:desc]] [keys-only] [count-only] [mod>=N] [mod<=N] [create>=N] …
//! txn { COMPARE … ? OP ; OP … : OP … }    with COMPARE: value(RANGE)=X version(RANGE)>N lease(RANGE)!=N …
//! compact N     scrub N     grant ID TTL [parent=ID]     revoke ID     step [renew=ID,ID] [limit=N] [hold]
//! take-over GRACE     alarm on|off no-space|corrupt MEMBER     nothing
//! ```
//!
//! A RANGE is `a`, `a..c` or `a..`, a time `5s` or `500ms`; `\0` is a zero byte, `''` is empty.

use std::iter::Peekable;
use std::vec::IntoIter;

use bytes::Bytes;
use tenure_state::command::{
    Alarm, AlarmAction, Command, Compare, CompareResult, CompareTarget, DeleteRange, Grant, LeaseStep, Op,
    Put, PutLease, Range, Sort, SortOrder, SortTarget, Stamp, TakeOver, Txn,
};
use tenure_state::ids::{LeaseId, MemberId, Nanos, Revision};
use tenure_state::key::KeyRange;

pub type Parsed<T> = Result<T, String>;

pub struct Words(Peekable<IntoIter<String>>);

impl Words {
    pub fn new(line: &str) -> Words {
        let words: Vec<_> = line.split_whitespace().map(str::to_string).collect();
        Words(words.into_iter().peekable())
    }

    pub fn next(&mut self) -> Parsed<String> {
        self.0.next().ok_or_else(|| "the line ends too early".to_string())
    }

    /// Takes the next word if it is this one.
    pub fn takes(&mut self, word: &str) -> bool {
        self.0.next_if(|next| next == word).is_some()
    }

    /// Takes the next word if it starts with this, and returns the rest of it.
    pub fn option(&mut self, start: &str) -> Option<String> {
        self.0.next_if(|next| next.starts_with(start)).map(|word| word[start.len()..].to_string())
    }

    pub fn end(&mut self) -> Parsed<()> {
        self.0.peek().map_or(Ok(()), |word| Err(format!("{word} is too much")))
    }

    fn is_at(&mut self, words: &[&str]) -> bool {
        self.0.peek().is_none_or(|next| words.contains(&next.as_str()))
    }
}

/// A command for the log; `None` if the verb is none.
pub fn command(verb: &str, words: &mut Words, stamp: Stamp) -> Parsed<Option<Command>> {
    Ok(Some(match verb {
        "nothing" => Command::Nothing,
        "put" => Command::Put(put(words)?),
        "del" => Command::DeleteRange(delete(words)?),
        "txn" => Command::Txn(txn(words)?),
        "compact" => Command::Compact { revision: Revision(number(&words.next()?)?) },
        "scrub" => Command::Scrub { limit: number(&words.next()?)? as u32 },
        "grant" => {
            let id = lease_id(&words.next()?)?;
            let ttl = time(&words.next()?)?;
            let parent = words.option("parent=").map_or(Ok(LeaseId::NONE), |id| lease_id(&id))?;
            Command::Grant(Grant { stamp, id, ttl, parent })
        }
        "revoke" => Command::Revoke { id: lease_id(&words.next()?)? },
        "step" => {
            let renew = words.option("renew=").unwrap_or_default();
            let renew = renew.split(',').filter(|id| !id.is_empty());
            let renew = renew.map(lease_id).collect::<Parsed<_>>()?;
            let limit = words.option("limit=").map_or(Ok(100), |limit| number(&limit))? as u32;
            Command::LeaseStep(LeaseStep { stamp, renew, limit, last: !words.takes("hold") })
        }
        "take-over" => Command::TakeOver(TakeOver { term: stamp.term, grace: time(&words.next()?)? }),
        "alarm" => {
            let action = match words.next()?.as_str() {
                "on" => AlarmAction::Activate,
                "off" => AlarmAction::Deactivate,
                other => return Err(format!("an alarm goes on or off, not {other}")),
            };
            let alarm = match words.next()?.as_str() {
                "no-space" => Alarm::NoSpace,
                "corrupt" => Alarm::Corrupt,
                other => return Err(format!("{other} is no alarm")),
            };
            let member = MemberId(number(&words.next()?)? as u64);
            Command::Alarm { action, member, alarm }
        }
        _ => return Ok(None),
    }))
}

fn put(words: &mut Words) -> Parsed<Put> {
    let key = text(&words.next()?);
    let value = if words.takes("keep-value") { None } else { Some(text(&words.next()?)) };
    let lease = if words.takes("keep-lease") {
        PutLease::Keep
    } else {
        PutLease::Set(words.option("lease=").map_or(Ok(LeaseId::NONE), |id| lease_id(&id))?)
    };
    Ok(Put { key, value, lease, prev: words.takes("prev") })
}

fn delete(words: &mut Words) -> Parsed<DeleteRange> {
    Ok(DeleteRange { range: key_range(&words.next()?), prev: words.takes("prev") })
}

pub fn range(words: &mut Words) -> Parsed<Range> {
    let mut range = Range {
        range: key_range(&words.next()?),
        revision: 0,
        limit: 0,
        sort: Sort::default(),
        keys_only: false,
        count_only: false,
        mod_min: 0,
        mod_max: 0,
        create_min: 0,
        create_max: 0,
    };
    while !words.is_at(&[";", ":", "}"]) {
        if let Some(sort) = words.option("sort=") {
            range.sort = parse_sort(&sort)?;
        } else if words.takes("keys-only") {
            range.keys_only = true;
        } else if words.takes("count-only") {
            range.count_only = true;
        } else {
            let word = words.next()?;
            let end = word.find(|c: char| c.is_ascii_digit() || c == '-').unwrap_or(word.len());
            let (name, value) = word.split_at(end);
            let field = match name {
                "rev=" => &mut range.revision,
                "limit=" => &mut range.limit,
                "mod>=" => &mut range.mod_min,
                "mod<=" => &mut range.mod_max,
                "create>=" => &mut range.create_min,
                "create<=" => &mut range.create_max,
                _ => return Err(format!("{word} is no option of a read")),
            };
            *field = number(value)?;
        }
    }
    Ok(range)
}

fn parse_sort(sort: &str) -> Parsed<Sort> {
    let (target, order) = sort.split_once(':').unwrap_or((sort, "none"));
    let target = match target {
        "key" => SortTarget::Key,
        "version" => SortTarget::Version,
        "create" => SortTarget::Create,
        "mod" => SortTarget::Mod,
        "value" => SortTarget::Value,
        _ => return Err(format!("{target} is nothing to sort by")),
    };
    let order = match order {
        "none" => SortOrder::None,
        "asc" => SortOrder::Ascend,
        "desc" => SortOrder::Descend,
        _ => return Err(format!("{order} is no order")),
    };
    Ok(Sort { target, order })
}

pub fn txn(words: &mut Words) -> Parsed<Txn> {
    let mut txn = Txn::default();
    if !words.takes("{") {
        return Err("a transaction stands in braces".to_string());
    }
    while !words.takes("?") {
        txn.compare.push(compare(&words.next()?)?);
    }
    let mut failed = false;
    while !words.takes("}") {
        if words.takes(":") {
            failed = true;
        } else if !words.takes(";") {
            let op = op(words)?;
            if failed { txn.failure.push(op) } else { txn.success.push(op) }
        }
    }
    Ok(txn)
}

fn op(words: &mut Words) -> Parsed<Op> {
    Ok(match words.next()?.as_str() {
        "get" => Op::Range(range(words)?),
        "put" => Op::Put(put(words)?),
        "del" => Op::DeleteRange(delete(words)?),
        "txn" => Op::Txn(Box::new(txn(words)?)),
        verb => return Err(format!("{verb} is no operation")),
    })
}

/// `mod(a..c)>5`
fn compare(word: &str) -> Parsed<Compare> {
    let wrong = || format!("{word} is no comparison");
    let (target, rest) = word.split_once('(').ok_or_else(wrong)?;
    let (range, rest) = rest.split_once(')').ok_or_else(wrong)?;
    let (result, than) = [
        ("!=", CompareResult::NotEqual),
        ("=", CompareResult::Equal),
        (">", CompareResult::Greater),
        ("<", CompareResult::Less),
    ]
    .into_iter()
    .find_map(|(sign, result)| Some((result, rest.strip_prefix(sign)?)))
    .ok_or_else(wrong)?;
    let target = match target {
        "version" => CompareTarget::Version(number(than)?),
        "create" => CompareTarget::Create(number(than)?),
        "mod" => CompareTarget::Mod(number(than)?),
        "lease" => CompareTarget::Lease(number(than)?),
        "value" => CompareTarget::Value(text(than)),
        _ => return Err(wrong()),
    };
    Ok(Compare { range: key_range(range), result, target })
}

pub fn key_range(word: &str) -> KeyRange {
    match word.split_once("..") {
        None => KeyRange::One(text(word)),
        Some((start, "")) => KeyRange::From(text(start)),
        Some((start, end)) => KeyRange::Span { start: text(start), end: text(end) },
    }
}

fn text(word: &str) -> Bytes {
    if word == "''" { Bytes::new() } else { Bytes::from(word.replace("\\0", "\0")) }
}

pub fn number(word: &str) -> Parsed<i64> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

pub fn lease_id(word: &str) -> Parsed<LeaseId> {
    number(word).map(LeaseId)
}

pub fn time(word: &str) -> Parsed<Nanos> {
    if let Some(ms) = word.strip_suffix("ms") {
        Ok(Nanos::from_millis(number(ms)? as u64))
    } else if let Some(secs) = word.strip_suffix('s') {
        Ok(Nanos::from_secs(number(secs)? as u64))
    } else {
        Err(format!("{word} is no time"))
    }
}
