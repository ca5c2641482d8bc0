//! `put`, `get`, `del`, `compact`.

use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};

use anyhow::Result;
use tenure_client::{
    Client, ClientError, Delete, Get, LeaseId, Put, Watch,
    etcdserverpb::{RangeResponse, range_request},
    mvccpb::KeyValue,
};
use tokio::time;
use tonic::Code;

use super::{bytes, key_range};
use crate::{
    cli,
    duration::{rounded_up, show},
    exit::Failure,
    print::{self, Format, Out, shown},
    view,
};

pub async fn put(client: &Client, mut args: cli::Put, out: &mut Out) -> Result<()> {
    let value = match args.value.take() {
        Some(value) => bytes(value),
        None if io::stdin().is_terminal() => {
            return Err(Failure::Usage("no value: give one, or pipe it in".into()).into());
        }
        None => {
            let mut value = Vec::new();
            io::stdin().read_to_end(&mut value)?;
            value
        }
    };
    let ttl = args.ttl.take().map(rounded_up);
    let name = args.key.clone();
    let mut put = put_request(args, value)?;
    let mut granted = None;
    if let Some(ttl) = ttl {
        let grant = client.grant(ttl).await?;
        put = put.lease(grant.id);
        granted = Some(grant);
    }
    let response = match client.put(put).await {
        Ok(response) => response,
        Err(error) => {
            // A lease that nothing is attached to helps nobody. If this fails, too, it ends by itself.
            if let Some(grant) = &granted {
                let _ = client.revoke(grant.id).await;
            }
            return Err(error.into());
        }
    };
    match out.format() {
        Format::Table => {
            match &granted {
                Some(grant) => out.line(&format!("OK  lease {}, gone in {}", grant.id, show(grant.ttl)))?,
                None => out.line("OK")?,
            }
            if let Some(previous) = response.prev_kv {
                key_value_table(out, &[previous], false)?;
            }
        }
        Format::Name => out.line(&shown(&bytes(name)))?,
        Format::Json | Format::Yaml => {
            let mut put = view::Put::from(response);
            if let Some(grant) = granted {
                put.lease = Some(grant.id.to_string());
                put.ttl = Some(grant.ttl.as_secs());
            }
            out.document(&put)?;
        }
    }
    Ok(())
}

/// The request alone, as a transaction needs it.
pub fn put_request(args: cli::Put, value: Vec<u8>) -> Result<Put> {
    let key = bytes(args.key);
    if key.is_empty() {
        return Err(Failure::Usage("a key cannot be empty".into()).into());
    }
    let mut put = Put::new(key, value);
    if let Some(lease) = args.lease {
        put = put.lease(lease);
    }
    Ok(if args.prev_kv { put.prev_kv() } else { put })
}

pub async fn get(client: &Client, args: cli::Get, out: &mut Out) -> Result<()> {
    let cli::Get { keys_only, count_only, value_only, .. } = args;
    let single = args.keys.range_end.is_none() && !args.keys.prefix && !args.keys.from_key;
    let name = args.keys.key.clone();
    let response = match client.get(get_request(args)?).await {
        Ok(response) => response,
        Err(error) => return Err(with_oldest(client, error).await.into()),
    };
    let missing = single && response.count == 0;
    if value_only && !missing {
        for kv in &response.kvs {
            out.raw(&kv.value)?;
            out.line("")?;
        }
        return Ok(());
    }
    match out.format() {
        _ if missing && !count_only && matches!(out.format(), Format::Table | Format::Name) => (),
        Format::Table | Format::Name if count_only => out.line(&response.count.to_string())?,
        Format::Table => range_table(out, &response, keys_only)?,
        Format::Name => {
            for kv in &response.kvs {
                out.line(&shown(&kv.key))?;
            }
        }
        Format::Json | Format::Yaml => out.document(&view::Get::from(response))?,
    }
    if missing && !count_only {
        return Err(Failure::NotFound(format!("there is no key {}", shown(&bytes(name)))).into());
    }
    Ok(())
}

pub fn get_request(args: cli::Get) -> Result<Get> {
    let mut get = Get::new(key_range(args.keys)?).revision(args.rev).limit(args.limit);
    if args.sort_by.is_some() || args.order.is_some() {
        let target = match args.sort_by.unwrap_or(cli::SortBy::Key) {
            cli::SortBy::Key => range_request::SortTarget::Key,
            cli::SortBy::Version => range_request::SortTarget::Version,
            cli::SortBy::Create => range_request::SortTarget::Create,
            cli::SortBy::Mod => range_request::SortTarget::Mod,
            cli::SortBy::Value => range_request::SortTarget::Value,
        };
        let order = match args.order.unwrap_or(cli::Order::Asc) {
            cli::Order::Asc => range_request::SortOrder::Ascend,
            cli::Order::Desc => range_request::SortOrder::Descend,
        };
        get = get.sort(target, order);
    }
    if args.keys_only {
        get = get.keys_only();
    }
    if args.count_only {
        get = get.count_only();
    }
    if args.serializable {
        get = get.serializable();
    }
    Ok(get)
}

/// Keys as a table, and on standard error how many more there are.
pub fn range_table(out: &mut Out, response: &RangeResponse, keys_only: bool) -> io::Result<()> {
    key_value_table(out, &response.kvs, keys_only)?;
    if response.more {
        out.flush()?;
        print::note(&format!("{} of {} keys", response.kvs.len(), response.count));
    }
    Ok(())
}

pub fn key_value_table(out: &mut Out, kvs: &[KeyValue], keys_only: bool) -> io::Result<()> {
    let rows: Vec<_> = kvs
        .iter()
        .map(|kv| {
            let mut row = vec![shown(&kv.key)];
            if !keys_only {
                row.push(shown(&kv.value));
            }
            row.push(kv.mod_revision.to_string());
            row.push(kv.version.to_string());
            row.push(if kv.lease == 0 { "-".into() } else { LeaseId(kv.lease).to_string() });
            row
        })
        .collect();
    let heading: &[&str] = if keys_only {
        &["KEY", "MOD", "VERSION", "LEASE"]
    } else {
        &["KEY", "VALUE", "MOD", "VERSION", "LEASE"]
    };
    out.table(heading, &rows)
}

pub async fn del(client: &Client, args: cli::Del, out: &mut Out) -> Result<()> {
    let response = client.delete(del_request(args)?).await?;
    match out.format() {
        Format::Table => {
            out.line(&format!("deleted {}", response.deleted))?;
            if !response.prev_kvs.is_empty() {
                key_value_table(out, &response.prev_kvs, false)?;
            }
        }
        Format::Name => {
            for kv in &response.prev_kvs {
                out.line(&shown(&kv.key))?;
            }
        }
        Format::Json | Format::Yaml => out.document(&view::Delete::from(response))?,
    }
    Ok(())
}

pub fn del_request(args: cli::Del) -> Result<Delete> {
    let delete = Delete::new(key_range(args.keys)?);
    Ok(if args.prev_kv { delete.prev_kv() } else { delete })
}

pub async fn compact(client: &Client, args: &cli::Compact, out: &mut Out) -> Result<()> {
    let response = match client.compact(args.revision, args.physical).await {
        Ok(response) => response,
        Err(error) => return Err(with_oldest(client, error).await.into()),
    };
    match out.format() {
        Format::Table => out.line(&format!("compacted up to revision {}", args.revision))?,
        Format::Name => out.line(&args.revision.to_string())?,
        Format::Json | Format::Yaml => {
            out.document(&view::Compact { header: response.header.into(), compacted: args.revision })?;
        }
    }
    Ok(())
}

/// What the oldest revision is only helps: nobody waits long for it.
const OLDEST_WAIT: Duration = Duration::from_secs(1);

/// Says which revision is the oldest, to whoever asked for an older one. The refusal does not, but that of a watch does.
async fn with_oldest(client: &Client, error: ClientError) -> ClientError {
    let ClientError::Server { code: Code::OutOfRange, message } = &error else { return error };
    if !message.ends_with("required revision has been compacted") {
        return error;
    }
    let refusal = async {
        let mut watcher = client.watch(Watch::key("\0").start_revision(1)).await?;
        loop {
            watcher.next().await?;
        }
    };
    let refused: Result<Result<(), _>, _> = time::timeout(OLDEST_WAIT, refusal).await;
    match refused {
        Ok(Err(ClientError::Compacted { compact_revision })) => ClientError::Server {
            code: Code::OutOfRange,
            message: format!("{message}; the oldest that is left is {compact_revision}"),
        },
        _ => error,
    }
}
