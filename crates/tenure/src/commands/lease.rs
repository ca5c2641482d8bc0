//! `lease grant | ls | get | keepalive | revoke`.

use anyhow::Result;
use tenure_client::{Client, ClientError, Hold, KeepAlive, LeaseId, etcdserverpb::LeaseTimeToLiveResponse};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    cli::{self, Lease},
    duration::{rounded_up, show},
    exit::{self, Failure},
    print::{self, Format, Out, shown},
    view,
};

/// Questions about single leases that may be on their way at once: enough to hide the network, too few to disturb a server.
const QUESTIONS_MAX: usize = 16;

/// Renewals that wait to be printed. When the terminal is slow, the printing waits, never the renewing.
const REPORTS_LEN_MAX: usize = 64;

pub async fn lease(client: &Client, command: Lease, out: &mut Out) -> Result<()> {
    match command {
        Lease::Grant(args) => grant(client, &args, out).await,
        Lease::Ls(_) => ls(client, out).await,
        Lease::Get(args) => get(client, &args, out).await,
        Lease::KeepAlive(args) if args.once => keep_alive_once(client, &args.ids, out).await,
        Lease::KeepAlive(args) => keep_alive(client, &args.ids, out).await,
        Lease::Revoke(args) => revoke(client, &args.ids, out).await,
    }
}

async fn grant(client: &Client, args: &cli::Grant, out: &mut Out) -> Result<()> {
    let id = args.id.unwrap_or(LeaseId(0));
    let grant = client.grant_as(id, rounded_up(args.ttl)).await?;
    match out.format() {
        Format::Table => out.line(&format!("lease {} granted, ttl {}", grant.id, show(grant.ttl)))?,
        Format::Name => out.line(&grant.id.to_string())?,
        Format::Json | Format::Yaml => out.document(&view::Grant {
            header: Some(grant.header).into(),
            id: grant.id.to_string(),
            ttl: grant.ttl.as_secs(),
        })?,
    }
    Ok(())
}

async fn ls(client: &Client, out: &mut Out) -> Result<()> {
    let ids = client.leases().await?;
    if out.format() == Format::Name {
        for id in ids {
            out.line(&id.to_string())?;
        }
        return Ok(());
    }
    let leases = time_to_live_of_each(client, &ids).await?;
    if out.format() == Format::Table {
        let rows: Vec<_> = leases
            .iter()
            .map(|lease| {
                vec![
                    LeaseId(lease.id).to_string(),
                    format!("{}s", lease.ttl),
                    format!("{}s", lease.granted_ttl),
                    lease.keys.len().to_string(),
                ]
            })
            .collect();
        out.table(&["LEASE", "LEFT", "TTL", "KEYS"], &rows)?;
        return Ok(());
    }
    out.document(&leases.into_iter().map(lease_view).collect::<Vec<_>>())
}

fn lease_view(response: LeaseTimeToLiveResponse) -> view::Lease {
    view::Lease {
        header: None,
        id: LeaseId(response.id).to_string(),
        ttl: response.granted_ttl,
        left: response.ttl,
        keys: response.keys.into_iter().map(view::Text).collect(),
    }
}

/// In the order of the ids; a lease that ended since they were listed is left out.
async fn time_to_live_of_each(client: &Client, ids: &[LeaseId]) -> Result<Vec<LeaseTimeToLiveResponse>> {
    let mut answers = vec![None; ids.len()];
    let mut waiting = ids.iter().copied().enumerate();
    let mut asked = JoinSet::new();
    loop {
        while asked.len() < QUESTIONS_MAX {
            let Some((place, id)) = waiting.next() else { break };
            let client = client.clone();
            asked.spawn(async move { (place, client.time_to_live(id, true).await) });
        }
        let Some(answer) = asked.join_next().await else { break };
        match answer? {
            (place, Ok(response)) => answers[place] = Some(response),
            (_, Err(ClientError::LeaseNotFound { .. })) => (),
            (_, Err(error)) => return Err(error.into()),
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

async fn get(client: &Client, args: &cli::LeaseGet, out: &mut Out) -> Result<()> {
    let lease = match client.time_to_live(args.id, args.keys).await {
        Ok(lease) => lease,
        Err(error) => {
            if error.is_lease_not_found() && matches!(out.format(), Format::Json | Format::Yaml) {
                let id = args.id.to_string();
                out.document(&view::Lease { header: None, id, ttl: 0, left: -1, keys: Vec::new() })?;
            }
            return Err(error.into());
        }
    };
    match out.format() {
        Format::Table => {
            out.line(&format!("lease {}, {}s left of {}s", args.id, lease.ttl, lease.granted_ttl))?;
            if args.keys {
                let rows: Vec<_> = lease.keys.iter().map(|key| vec![shown(key)]).collect();
                out.table(&["KEY"], &rows)?;
            }
        }
        Format::Name => {
            for key in &lease.keys {
                out.line(&shown(key))?;
            }
        }
        Format::Json | Format::Yaml => {
            let header = lease.header.map(|header| Some(header).into());
            out.document(&view::Lease { header, ..lease_view(lease) })?;
        }
    }
    Ok(())
}

async fn keep_alive_once(client: &Client, ids: &[LeaseId], out: &mut Out) -> Result<()> {
    let mut missing = Vec::new();
    for &id in ids {
        match client.keep_alive_once(id).await {
            Ok(grant) => renewed(out, id, grant.ttl.as_secs())?,
            // The others are renewed all the same: a lease that is gone is no reason to lose one that is not.
            Err(ClientError::LeaseNotFound { id }) => {
                not_renewed(out, id)?;
                missing.push(id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    not_found(&missing)
}

/// For programs: a line for each lease, also for the one that is not there. People are told in the end.
fn not_renewed(out: &mut Out, id: LeaseId) -> Result<()> {
    if matches!(out.format(), Format::Table | Format::Name) {
        return Ok(());
    }
    let lost = Some(ClientError::LeaseNotFound { id }.to_string());
    out.event(&view::Renewal { id: id.to_string(), ttl: 0, lost })
}

fn renewed(out: &mut Out, id: LeaseId, ttl_s: u64) -> Result<()> {
    match out.format() {
        Format::Table => out.line(&format!("lease {id} kept alive, {ttl_s}s left"))?,
        Format::Name => out.line(&id.to_string())?,
        Format::Json | Format::Yaml => {
            return out.event(&view::Renewal { id: id.to_string(), ttl: ttl_s, lost: None });
        }
    }
    Ok(out.flush()?)
}

fn not_found(ids: &[LeaseId]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = ids.iter().map(LeaseId::to_string).collect();
    Err(Failure::NotFound(format!("no such lease: {}", ids.join(", "))).into())
}

/// Renews until every lease is lost.
async fn keep_alive(client: &Client, ids: &[LeaseId], out: &mut Out) -> Result<()> {
    // The first renewal is one like any other, except that a lease that is not there now was never ours to lose.
    let mut grants = Vec::new();
    let mut missing = Vec::new();
    for &id in ids {
        match client.keep_alive_once(id).await {
            Ok(grant) => grants.push(grant),
            Err(ClientError::LeaseNotFound { id }) => {
                not_renewed(out, id)?;
                missing.push(id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    not_found(&missing)?;

    let (reports, mut changes) = mpsc::channel(REPORTS_LEN_MAX);
    for grant in &grants {
        renewed(out, grant.id, grant.ttl.as_secs())?;
        tokio::spawn(report(client.keep_alive(grant), reports.clone()));
    }
    drop(reports);
    while let Some((id, hold)) = changes.recv().await {
        let loss = match hold {
            Hold::Held { ttl, .. } => {
                renewed(out, id, ttl.as_secs())?;
                continue;
            }
            Hold::Lost(loss) => loss.to_string(),
        };
        match out.format() {
            Format::Table | Format::Name => print::warn(&loss),
            Format::Json | Format::Yaml => {
                out.event(&view::Renewal { id: id.to_string(), ttl: 0, lost: Some(loss) })?;
            }
        }
    }
    Err(if grants.len() == 1 {
        Failure::Silent(exit::LEASE_LOST).into()
    } else {
        Failure::LeaseLost("every lease is lost".into()).into()
    })
}

async fn report(alive: KeepAlive, reports: mpsc::Sender<(LeaseId, Hold)>) {
    let mut hold = alive.subscribe();
    while hold.changed().await.is_ok() {
        let now = hold.borrow_and_update().clone();
        let over = matches!(now, Hold::Lost(_));
        if reports.send((alive.id(), now)).await.is_err() || over {
            return;
        }
    }
}

async fn revoke(client: &Client, ids: &[LeaseId], out: &mut Out) -> Result<()> {
    let mut missing = Vec::new();
    let mut revoked = Vec::new();
    for &id in ids {
        match client.revoke(id).await {
            Ok(response) => match out.format() {
                Format::Table => out.line(&format!("lease {id} revoked"))?,
                Format::Name => out.line(&id.to_string())?,
                Format::Json | Format::Yaml => {
                    revoked.push(view::Revoked { header: response.header.into(), id: id.to_string() });
                }
            },
            Err(ClientError::LeaseNotFound { id }) => missing.push(id),
            Err(error) => return Err(error.into()),
        }
    }
    if matches!(out.format(), Format::Json | Format::Yaml) {
        out.document(&revoked)?;
    }
    not_found(&missing)
}
