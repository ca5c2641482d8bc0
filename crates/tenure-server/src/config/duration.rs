//! Durations as Go writes them: `1h15m30.5s`, `300ms`, `0`.

use std::time::Duration;

const NANOS_BY_UNIT: [(&str, u64); 8] = [
    // Longer units before those that they begin with.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `None` for what is no duration, or a negative one, or one beyond what fits 64 bits of nanoseconds.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let unit = NANOS_BY_UNIT.iter().find(|(name, _)| *name == unit)?.1;
        nanos = nanos.checked_add(scale(number, unit)?)?;
        rest = after;
    }
    i64::try_from(nanos).ok()?;
    Some(Duration::from_nanos(nanos))
}

/// `number` units in nanoseconds, without the errors of floating point.
fn scale(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = u128::from(whole) * u128::from(unit);
    let mut place = u128::from(unit);
    for digit in fraction.bytes() {
        place /= 10;
        nanos += u128::from(digit - b'0') * place;
    }
    nanos.try_into().ok()
}

/// For people: `1h30m`, `250ms`.
pub(super) fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, size) in [("ms", 1_000_000), ("us", 1_000), ("ns", 1)] {
        if !nanos.is_multiple_of(1_000_000_000) && nanos.is_multiple_of(size) {
            return format!("{}{unit}", nanos / size);
        }
    }
    let seconds = nanos / 1_000_000_000;
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("1ns", 1),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("300ms", 300_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("2h45m", 9_900_000_000_000),
            ("+1h", 3_600_000_000_000),
            ("0.1s", 100_000_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in
            ["", "+", "5", "1.5", "s", "1x", "-1s", "1 s", "1..5s", "1.2.3s", "99999999h", "1h2", ".s", "１s"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["0s", "5m", "1h30m", "250ms", "1h1s", "1500us", "1500ms", "7ns", "2h"] {
            let duration = parse(text).expect("a duration");
            assert_eq!(format(duration), text);
            assert_eq!(parse(&format(duration)), Some(duration));
        }
    }
}
