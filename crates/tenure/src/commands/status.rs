//! `status`: one line for each endpoint, also for the one that does not answer.

use anyhow::Result;
use tenure_client::{Client, ClientError};

use crate::{
    exit::{self, Failure},
    print::{self, Format, Out, size},
    view::{Endpoint, Status},
};

pub async fn status(client: &Client, out: &mut Out) -> Result<()> {
    let endpoints: Vec<_> = client
        .status_of_each()
        .await
        .into_iter()
        .map(|(endpoint, answer)| match answer {
            Ok(response) => Endpoint { endpoint, status: Some(response.into()), error: None },
            // The endpoint is named beside it.
            Err(ClientError::Connect { tried }) => {
                let error = tried.into_iter().map(|(_, why)| why).next();
                Endpoint { endpoint, status: None, error }
            }
            Err(error) => Endpoint { endpoint, status: None, error: Some(error.to_string()) },
        })
        .collect();
    match out.format() {
        Format::Table => {
            let rows: Vec<_> =
                endpoints.iter().filter_map(|one| Some(row(&one.endpoint, one.status.as_ref()?))).collect();
            if !rows.is_empty() {
                let heading = [
                    "ENDPOINT", "MEMBER", "VERSION", "ROLE", "TERM", "INDEX", "APPLIED", "SIZE", "IN USE",
                    "ERRORS",
                ];
                out.table(&heading, &rows)?;
                out.flush()?;
            }
            for one in &endpoints {
                if let Some(error) = &one.error {
                    print::warn(&format!("{}: {error}", one.endpoint));
                }
            }
        }
        Format::Name => {
            for one in endpoints.iter().filter(|one| one.status.is_some()) {
                out.line(&one.endpoint)?;
            }
        }
        Format::Json | Format::Yaml => out.document(&endpoints)?,
    }
    let answered = endpoints.iter().filter(|one| one.status.is_some()).count();
    if answered == 0 {
        return Err(Failure::NoCluster("no endpoint answered".into()).into());
    }
    if answered < endpoints.len() {
        return Err(Failure::Silent(exit::ERROR).into());
    }
    Ok(())
}

fn row(endpoint: &str, status: &Status) -> Vec<String> {
    let role = match (status.is_leader, status.is_learner) {
        (true, _) => "leader",
        (false, true) => "learner",
        (false, false) if status.leader == 0 => "no leader",
        (false, false) => "follower",
    };
    vec![
        endpoint.to_owned(),
        format!("{:016x}", status.header.member_id),
        status.version.clone(),
        role.to_owned(),
        status.header.raft_term.to_string(),
        status.raft_index.to_string(),
        status.raft_applied_index.to_string(),
        size(status.db_size),
        size(status.db_size_in_use),
        if status.errors.is_empty() { "-".into() } else { status.errors.join("; ") },
    ]
}
