//! How a line looks: for people, or as the JSON that etcd's logger writes, which log collectors know.

use std::fmt::{self, Write};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Text { colours: bool },
    Json,
}

impl<S, N> FormatEvent<S, N> for Style
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields { style: *self, message: String::new(), others: String::new() };
        event.record(&mut fields);
        let caller = metadata.file().zip(metadata.line());
        let line = self.line(SystemTime::now(), *metadata.level(), caller, &fields.message, &fields.others);
        writer.write_str(&line)
    }
}

impl Style {
    /// Says that lines were dropped, where they are missing.
    pub(super) fn missing(self, line_count: u64) -> String {
        let message = format!("{line_count} log lines were dropped here: nobody took them in time");
        self.line(SystemTime::now(), Level::WARN, None, &message, "")
    }

    fn line(
        self,
        now: SystemTime,
        level: Level,
        caller: Option<(&str, u32)>,
        message: &str,
        others: &str,
    ) -> String {
        let time = humantime::format_rfc3339_micros(now);
        let mut line = String::with_capacity(128);
        let _ = match self {
            Style::Text { colours } => {
                let message = visible(message);
                let level_name = level.as_str();
                if colours {
                    let colour = match level {
                        Level::ERROR => 31,
                        Level::WARN => 33,
                        Level::INFO => 32,
                        _ => 34,
                    };
                    writeln!(
                        line,
                        "\x1b[2m{time}\x1b[0m \x1b[{colour}m{level_name:>5}\x1b[0m {message}{others}"
                    )
                } else {
                    writeln!(line, "{time} {level_name:>5} {message}{others}")
                }
            }
            Style::Json => {
                let level = match level {
                    Level::ERROR => "error",
                    Level::WARN => "warn",
                    Level::INFO => "info",
                    _ => "debug",
                };
                let _ = write!(line, "{{\"level\":\"{level}\",\"ts\":\"{time}\"");
                if let Some((file, number)) = caller {
                    // etcd names the folder and the file.
                    let start = file.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
                    let caller = json(&format!("{}:{number}", &file[start..]));
                    let _ = write!(line, ",\"caller\":{caller}");
                }
                writeln!(line, ",\"msg\":{}{others}}}", json(message))
            }
        };
        line
    }
}

/// Collects the fields of one event.
struct Fields {
    style: Style,
    message: String,
    others: String,
}

impl Fields {
    /// `value` is ready for JSON.
    fn push(&mut self, field: &Field, value: &str) {
        let name = field.name();
        let _ = match self.style {
            Style::Json => write!(self.others, ",{}:{value}", json(name)),
            Style::Text { colours: true } => write!(self.others, " \x1b[2m{name}=\x1b[0m{value}"),
            Style::Text { colours: false } => write!(self.others, " {name}={value}"),
        };
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
            return;
        }
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
        match self.style {
            Style::Text { .. } if !value.is_empty() && value.chars().all(plain) => self.push(field, value),
            _ => self.push(field, &json(value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.push(field, &value.to_string());
        } else {
            self.record_str(field, &value.to_string());
        }
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("text is always JSON")
}

/// On one line, and nothing that moves a terminal's cursor: what a client sent must not look like a line of ours.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(style: Style, message: &str, others: &str) -> String {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_796_000_000_000_001);
        style.line(time, Level::WARN, Some(("crates/tenure-server/src/listen.rs", 7)), message, others)
    }

    #[test]
    fn lines_for_people_and_for_machines() {
        let plain = Style::Text { colours: false };
        assert_eq!(
            line(plain, "it is full", " used=7"),
            "2026-11-30T00:53:20.000001Z  WARN it is full used=7\n"
        );
        assert_eq!(
            line(Style::Text { colours: true }, "x", ""),
            "\x1b[2m2026-11-30T00:53:20.000001Z\x1b[0m \x1b[33m WARN\x1b[0m x\n"
        );
        assert_eq!(
            line(Style::Json, "say \"hi\"\n", ",\"used\":7"),
            "{\"level\":\"warn\",\"ts\":\"2026-11-30T00:53:20.000001Z\",\"caller\":\"src/listen.rs:7\",\
             \"msg\":\"say \\\"hi\\\"\\n\",\"used\":7}\n"
        );
    }

    #[test]
    fn what_a_client_sent_cannot_make_a_line_of_its_own() {
        let plain = Style::Text { colours: false };
        let forged = line(plain, "key a\n2026-01-01 INFO all is well\x1b[2J", "");
        assert_eq!(forged.matches('\n').count(), 1, "{forged:?}");
        assert!(!forged.contains('\x1b'), "{forged:?}");
    }
}
