//! What the system says of a server's process: the processor time that it used and the memory that it holds; and which process listens
//! on a port of this machine. Everything is read from /proc, so on other systems there is nothing to show.

use std::{
    collections::HashSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::{AddAssign, Sub},
    time::Duration,
};

use anyhow::{Context, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    pub rss_bytes: u64,
    /// Without what is mapped from files, which both etcd's and Tenure's stores are.
    pub anon_bytes: u64,
}

impl Usage {
    /// The sum over all processes of a server.
    pub fn of(pids: &[u32]) -> Result<Usage> {
        let tick = rustix::param::clock_ticks_per_second();
        let mut sum = Usage::default();
        for pid in pids {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
            let (stat, status) = read("stat")
                .and_then(|stat| Ok((stat, read("status")?)))
                .with_context(|| format!("the server's process {pid} is gone or may not be looked at"))?;
            let cpu_ticks = cpu_ticks(&stat).context("/proc/PID/stat is not as expected")?;
            sum += Usage {
                cpu: Duration::from_nanos(cpu_ticks.saturating_mul(1_000_000_000 / tick.max(1))),
                rss_bytes: status_bytes(&status, "VmRSS:"),
                anon_bytes: status_bytes(&status, "RssAnon:"),
            };
        }
        Ok(sum)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.cpu += other.cpu;
        self.rss_bytes += other.rss_bytes;
        self.anon_bytes += other.anon_bytes;
    }
}

/// The processor time between two readings.
impl Sub for Usage {
    type Output = Duration;
    fn sub(self, before: Usage) -> Duration {
        self.cpu.saturating_sub(before.cpu)
    }
}

/// User and system time from `/proc/PID/stat`. The name of the program stands in it, with whatever brackets and spaces it has.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn status_bytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The program's name, `etcd` or `tenure`.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The processes that listen at `address`; none when it is not on this machine, or they are somebody else's.
pub fn listening(address: SocketAddr) -> Vec<u32> {
    if !address.ip().is_loopback() {
        return Vec::new();
    }
    let mut inodes = HashSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = fs::read_to_string(file).unwrap_or_default();
        inodes.extend(table.lines().filter_map(|line| listening_inode(line, address)));
    }
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| has_socket(pid, &inodes).unwrap_or(false))
        .collect();
    pids.sort_unstable();
    pids
}

fn has_socket(pid: u32, inodes: &HashSet<u64>) -> io::Result<bool> {
    for file in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(link) = fs::read_link(file?.path()) else { continue };
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        if inode.and_then(|inode| inode.parse().ok()).is_some_and(|inode| inodes.contains(&inode)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The socket's inode, if this line of `/proc/net/tcp` is one that listens where a connection to `address` would arrive.
fn listening_inode(line: &str, address: SocketAddr) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if fields.get(3) != Some(&LISTEN) {
        return None;
    }
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let (ip, port) = (local_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let reached = ip == address.ip() || ip.is_unspecified() || ip.to_canonical() == address.ip();
    if port != address.port() || !reached {
        return None;
    }
    fields.get(9)?.parse().ok()
}

/// Addresses are written as the words of memory, each in this machine's byte order.
fn local_ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 7 20 0 9 0 100 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t     100 kB\n";
        assert_eq!(status_bytes(status, "VmRSS:"), 2 << 20);
        assert_eq!(status_bytes(status, "RssAnon:"), 102_400);
        assert_eq!(status_bytes(status, "VmSwap:"), 0);
    }

    #[test]
    fn this_process_is_found_by_the_port_that_it_listens_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        assert_eq!(listening(address), [std::process::id()]);
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), address.port());
        assert!(listening(elsewhere).is_empty());
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let usage = Usage::of(&[std::process::id()]).expect("it is there");
        assert!(usage.rss_bytes > 0 && usage.rss_bytes >= usage.anon_bytes, "{usage:?}");
        assert!(Usage::of(&[u32::MAX]).is_err());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_sockets_that_listen_are_taken() {
        let at: SocketAddr = "127.0.0.1:2379".parse().expect("an address");
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 31337 1 x"
            )
        };
        assert_eq!(listening_inode(&line("0100007F:094B", "0A"), at), Some(31337));
        assert_eq!(listening_inode(&line("00000000:094B", "0A"), at), Some(31337));
        assert_eq!(listening_inode(&line("0100007F:094B", "01"), at), None);
        assert_eq!(listening_inode(&line("0100007F:094C", "0A"), at), None);
        let any6 = "00000000000000000000000000000000:094B";
        assert_eq!(listening_inode(&line(any6, "0A"), at), Some(31337));
        let mapped = "0000000000000000FFFF00000100007F:094B";
        assert_eq!(listening_inode(&line(mapped, "0A"), at), Some(31337));
    }
}
