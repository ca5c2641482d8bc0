//! What Linux knows of this process, under the names that Prometheus clients use everywhere.

use std::fs;

use super::exposition::Exposition;

/// Leaves out what this system does not tell.
pub(super) fn expose(out: &mut Exposition) {
    if let Some(fds) = open_fds() {
        out.gauge("process_open_fds", "Open file descriptors.", fds);
        out.gauge("os_fd_used", "Open file descriptors.", fds);
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(max) = soft_limit(&limits, "Max open files") {
        out.gauge("process_max_fds", "The most file descriptors that this process may open.", max);
        out.gauge("os_fd_limit", "The most file descriptors that this process may open.", max);
    }
    if let Some(max) = soft_limit(&limits, "Max address space") {
        out.gauge(
            "process_virtual_memory_max_bytes",
            "The most address space allowed, -1 without a limit.",
            max,
        );
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(bytes) = kibibytes(&status, "VmRSS:") {
        out.gauge("process_resident_memory_bytes", "Memory in RAM.", bytes);
    }
    if let Some(bytes) = kibibytes(&status, "VmSize:") {
        out.gauge("process_virtual_memory_bytes", "Address space.", bytes);
    }
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    if let Some(ticks) = stat_field(&stat, 14).zip(stat_field(&stat, 15)).map(|(user, system)| user + system)
    {
        out.counter_seconds(
            "process_cpu_seconds_total",
            "CPU time, of the user and the system.",
            ticks / ticks_per_second,
        );
    }
    if let Some((ticks, booted)) = stat_field(&stat, 22).zip(boot_time()) {
        out.gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            booted + ticks / ticks_per_second,
        );
    }
    if let Some((received, sent)) = network_octets() {
        out.counter(
            "process_network_receive_bytes_total",
            "Bytes received over IP in this network namespace.",
            received,
        );
        out.counter(
            "process_network_transmit_bytes_total",
            "Bytes sent over IP in this network namespace.",
            sent,
        );
    }
}

fn open_fds() -> Option<f64> {
    // The directory that is being read has a descriptor of its own.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn soft_limit(limits: &str, name: &str) -> Option<f64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(-1.0),
        number => number.parse().ok(),
    }
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024.0)
}

/// Counts from 1, as `man 5 proc` does. The second field is in parentheses and may hold spaces.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn network_octets() -> Option<(u64, u64)> {
    let netstat = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let position = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(position)?.parse().ok()
    };
    value("InOctets").zip(value("OutOctets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_after_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 111 222 13 14 15 16 17 18 3333 20";
        assert_eq!(stat_field(stat, 14), Some(111.0));
        assert_eq!(stat_field(stat, 15), Some(222.0));
        assert_eq!(stat_field(stat, 22), Some(3333.0));
        assert_eq!(stat_field(stat, 99), None);
        assert_eq!(stat_field("", 14), None);
    }

    #[test]
    fn limits() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(soft_limit(limits, "Max address space"), Some(-1.0));
        assert_eq!(soft_limit(limits, "Max nothing"), None);
    }
}
