//! A server that is measured: connections to it, and the processes that it is.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tenure_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, StatusRequest, kv_client::KvClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient, watch_client::WatchClient,
};
use tonic::transport::{Channel, Endpoint};

use super::{
    args::Shared,
    process::{self, Usage},
};
use crate::{cli::Global, exit::Failure, print};

const DEFAULT_PORT: u16 = 2379;

/// A range of 1,000 large values does not fit into tonic's default of 4 MiB.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Long enough for a server that is busy with 100,000 leases, short enough to notice one that is stuck.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Target {
    pub name: String,
    pub endpoint: String,
    pub version: String,
    /// Empty when they are not known: then there are no figures of processor time and memory.
    pub pids: Vec<u32>,
    channels: Vec<Channel>,
    /// Everything that this run writes starts with it.
    prefix: String,
    /// Ids of this run's leases count up from here.
    pub first_lease: i64,
}

impl Target {
    /// The first server, and the second if there is one.
    pub async fn connect_all(global: &Global, shared: &Shared, run: u32) -> Result<Vec<Target>> {
        let dial = global.dial_timeout().map_err(Failure::Usage)?;
        let ours = global.endpoints();
        let mut targets = vec![Target::connect(&ours, &shared.pid, shared, dial, run).await?];
        if let Some(against) = &shared.against {
            let theirs = std::slice::from_ref(against);
            targets.push(Target::connect(theirs, &shared.against_pid, shared, dial, run).await?);
        }
        if let [first, second] = &mut targets[..]
            && first.name == second.name
        {
            (first.name, second.name) = (format!("{} (1)", first.name), format!("{} (2)", second.name));
        }
        Ok(targets)
    }

    async fn connect(
        endpoints: &[String],
        pids: &[u32],
        shared: &Shared,
        dial: Duration,
        run: u32,
    ) -> Result<Target> {
        let mut addresses = Vec::new();
        for endpoint in endpoints {
            addresses.push(address(endpoint)?);
        }
        let mut channels = Vec::new();
        for index in 0..usize::from(shared.connections).max(addresses.len()) {
            let (name, _) = &addresses[index % addresses.len()];
            let endpoint = Endpoint::from_shared(name.clone())?
                .connect_timeout(dial)
                .timeout(REQUEST_TIMEOUT)
                .tcp_nodelay(true);
            let channel = endpoint.connect().await.map_err(|error| {
                Failure::NoCluster(format!("cannot connect to {name}: {}", root_cause(&error)))
            })?;
            channels.push(channel);
        }
        let mut found: Vec<u32> = pids.to_vec();
        if found.is_empty() {
            found =
                addresses.iter().flat_map(|(_, at)| at.map(process::listening).unwrap_or_default()).collect();
            found.sort_unstable();
            found.dedup();
        }
        Usage::of(&found)?;
        if found.is_empty() {
            print::warn(&format!(
                "no process of {} is known, so neither processor time nor memory is measured; name it with --pid",
                endpoints.join(",")
            ));
        }
        let status = MaintenanceClient::new(channels[0].clone()).status(StatusRequest {}).await?.into_inner();
        let name = found.first().and_then(|&pid| process::name(pid));
        Ok(Target {
            name: name.unwrap_or_else(|| endpoints.join(",")),
            endpoint: addresses.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(","),
            version: status.version,
            pids: found,
            channels,
            prefix: format!("tenure-bench/{run:08x}/"),
            first_lease: (i64::from(run & 0x3fff_ffff) << 32) + 1,
        })
    }

    pub fn usage(&self) -> Result<Usage> {
        Usage::of(&self.pids)
    }

    pub fn has_processes(&self) -> bool {
        !self.pids.is_empty()
    }

    fn channel(&self, number: usize) -> Channel {
        self.channels[number % self.channels.len()].clone()
    }

    /// Clients and streams are dealt out over the connections by their number.
    pub fn kv(&self, number: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(number)).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub fn lease(&self, number: usize) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel(number))
    }

    pub fn watch(&self, number: usize) -> WatchClient<Channel> {
        WatchClient::new(self.channel(number)).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The key of one number in one family; keys of a family sort by number.
    pub fn key(&self, family: &str, number: u64) -> Bytes {
        Bytes::from(format!("{}{family}/{number:08}", self.prefix))
    }

    /// First key of a family, and the first that is no longer in it.
    pub fn family(&self, family: &str) -> (Bytes, Bytes) {
        (Bytes::from(format!("{}{family}/", self.prefix)), Bytes::from(format!("{}{family}0", self.prefix)))
    }

    /// What `key` of a family was made of.
    pub fn number(&self, family: &str, key: &[u8]) -> Option<u64> {
        let digits = key.get(self.prefix.len() + family.len() + 1..)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    pub async fn put(&self, key: Bytes, value: Bytes) -> Result<()> {
        self.kv(0).put(PutRequest { key, value, ..PutRequest::default() }).await?;
        Ok(())
    }

    /// Removes all keys of this run.
    pub async fn clean_up(&self) -> Result<()> {
        let (key, range_end) = (
            Bytes::from(self.prefix.clone()),
            Bytes::from(format!("{}0", self.prefix.trim_end_matches('/'))),
        );
        let request = DeleteRangeRequest { key, range_end, prev_kv: false };
        self.kv(0).delete_range(request).await.context("cannot remove the keys of this run")?;
        Ok(())
    }
}

/// The endpoint as a URI, and the address behind it if it has one.
fn address(endpoint: &str) -> Result<(String, Option<SocketAddr>)> {
    let plain = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
    if plain.contains("://") || plain.starts_with("unix:") {
        bail!(Failure::Usage(format!("{endpoint}: bench speaks plain TCP; write host:port")));
    }
    let plain = match plain.rsplit_once(':') {
        Some(("", port)) => format!("127.0.0.1:{port}"),
        Some((host, _)) if !host.ends_with(']') && host.contains(':') => format!("[{plain}]:{DEFAULT_PORT}"),
        Some(_) => plain.to_owned(),
        None => format!("{plain}:{DEFAULT_PORT}"),
    };
    let at = plain.to_socket_addrs().ok().and_then(|mut found| found.next());
    Ok((format!("http://{plain}"), at))
}

/// tonic's own text is only "transport error"; why is in what caused it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_completed() {
        let uri = |text: &str| address(text).expect(text).0;
        assert_eq!(uri("127.0.0.1:1"), "http://127.0.0.1:1");
        assert_eq!(uri("http://127.0.0.1:1/"), "http://127.0.0.1:1");
        assert_eq!(uri(":22379"), "http://127.0.0.1:22379");
        assert_eq!(uri("127.0.0.1"), "http://127.0.0.1:2379");
        assert_eq!(uri("[::1]:5"), "http://[::1]:5");
        assert!(address("https://127.0.0.1:1").is_err());
        assert!(address("unix:/tmp/x").is_err());
    }
}
