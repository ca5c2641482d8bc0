//! Durations as people write them: `250ms`, `10s`, `1h30m`, and a bare number of seconds, because `lease grant 10` is what etcd's
//! users are used to.

use std::time::Duration;

use tenure_client::whole_seconds;

pub fn parse(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Duration::from_secs).map_err(|_| "it is too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|_| "write 250ms, 10s, 2h, or a number of seconds".to_owned())
}

/// A time to live: a duration that is not nothing.
pub fn parse_ttl(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("a lease must live for some time".into()),
        ttl => Ok(ttl),
    }
}

/// What the server will be asked for. Says so on standard error when that is not what was written.
pub fn rounded_up(ttl: Duration) -> Duration {
    let rounded = Duration::from_secs(whole_seconds(ttl).unsigned_abs());
    if rounded != ttl {
        eprintln!(
            "note: {} is rounded up to {}: etcd's API counts leases in whole seconds",
            show(ttl),
            show(rounded)
        );
    }
    rounded
}

pub fn show(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("10"), Ok(Duration::from_secs(10)));
        for bad in ["", "-1s", "ten", "10x", "99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse_ttl("0s").is_err());
    }

    #[test]
    fn a_ttl_is_never_rounded_down() {
        assert_eq!(rounded_up(Duration::from_millis(250)), Duration::from_secs(1));
        assert_eq!(rounded_up(Duration::from_millis(10_001)), Duration::from_secs(11));
        assert_eq!(rounded_up(Duration::from_secs(10)), Duration::from_secs(10));
    }
}
