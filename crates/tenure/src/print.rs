//! Everything that reaches the terminal. Tables for people, JSON and YAML for programs, bare names for shells; colours only where
//! somebody can see them.

use std::{
    env,
    fmt::Write as _,
    io::{self, BufWriter, IsTerminal, Stdout, Write},
};

use clap::ValueEnum;
use serde::Serialize;

/// How to print an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns, for people
    Table,
    /// One JSON document, or one a line where answers go on coming
    Json,
    /// The same as YAML
    Yaml,
    /// Only the keys or ids, one a line
    Name,
}

/// Colours that an answer may use.
#[derive(Debug, Clone, Copy)]
pub enum Colour {
    Heading,
    Good,
    Bad,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Heading => "1",
            Colour::Good => "32",
            Colour::Bad => "31",
        }
    }
}

/// Values longer than this are cut in a table on a terminal; a pipe gets all of it.
const CELL_CHARS_MAX: usize = 80;

/// Standard output. Errors of writing are returned, never a panic: a reader that went away is no reason to crash.
pub struct Out {
    format: Format,
    terminal: bool,
    colour: bool,
    writer: BufWriter<Stdout>,
}

impl Out {
    pub fn new(format: Format) -> Out {
        let terminal = io::stdout().is_terminal();
        Out { format, terminal, colour: terminal && colour_wanted(), writer: BufWriter::new(io::stdout()) }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.writer, "{text}")
    }

    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// One JSON document over several lines, or one YAML document.
    pub fn document<T: Serialize>(&mut self, value: &T) -> anyhow::Result<()> {
        if self.format == Format::Yaml {
            serde_norway::to_writer(&mut self.writer, &as_json(value)?)?;
        } else {
            serde_json::to_writer_pretty(&mut self.writer, value).map_err(io::Error::from)?;
            self.line("")?;
        }
        Ok(())
    }

    /// One of many: a JSON line, or a YAML document of its own. Flushed, because somebody may be waiting for it.
    pub fn event<T: Serialize>(&mut self, value: &T) -> anyhow::Result<()> {
        if self.format == Format::Yaml {
            self.line("---")?;
            serde_norway::to_writer(&mut self.writer, &as_json(value)?)?;
        } else {
            serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from)?;
            self.line("")?;
        }
        Ok(self.flush()?)
    }

    pub fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let limit = if self.terminal { CELL_CHARS_MAX } else { usize::MAX };
        let text = lay_out(heading, rows, limit);
        let mut lines = text.lines();
        if let Some(heading) = lines.next() {
            let heading = self.paint(Colour::Heading, heading);
            self.line(&heading)?;
        }
        for line in lines {
            self.line(line)?;
        }
        Ok(())
    }

    pub fn paint(&self, colour: Colour, text: &str) -> String {
        paint(self.colour, colour, text)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What YAML shows is what JSON shows: serde alone would write an enum as a tag (`!get`). By way of the text, because that keeps the
/// order of the keys.
fn as_json<T: Serialize>(value: &T) -> anyhow::Result<serde_norway::Value> {
    Ok(serde_json::from_str(&serde_json::to_string(value)?)?)
}

fn paint(wanted: bool, colour: Colour, text: &str) -> String {
    if wanted { format!("\x1b[{}m{text}\x1b[0m", colour.code()) } else { text.to_owned() }
}

/// By the convention of no-color.org: set and not empty means no.
fn colour_wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A word on standard error about something that is not part of the answer.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A word on standard error about something that went wrong while the rest goes on.
pub fn warn(text: &str) {
    note(&paint_error(text));
}

pub fn error(error: &anyhow::Error) {
    note(&format!("{} {error:#}", paint_error("error:")));
}

fn paint_error(text: &str) -> String {
    paint(io::stderr().is_terminal() && colour_wanted(), Colour::Bad, text)
}

/// Columns as wide as their widest cell, two spaces apart, and nothing after the last one.
fn lay_out(heading: &[&str], rows: &[Vec<String>], limit: usize) -> String {
    let cut = |cell: &str| -> String {
        if cell.chars().count() <= limit {
            return cell.to_owned();
        }
        let mut short: String = cell.chars().take(limit.saturating_sub(1)).collect();
        short.push('…');
        short
    };
    let mut lines: Vec<Vec<String>> = vec![heading.iter().map(|&cell| cell.to_owned()).collect()];
    lines.extend(rows.iter().map(|row| row.iter().map(|cell| cut(cell)).collect()));
    let mut widths = vec![0; heading.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &lines {
        let mut padded = String::new();
        for (width, cell) in widths.iter().zip(line) {
            let _ = write!(padded, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", padded.trim_end());
    }
    text
}

/// Bytes for people: text as it is, what would garble a terminal or a table escaped.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for one in chunk.valid().chars() {
            match one {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => text.extend(control.escape_default()),
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Bytes in the units that people compare.
pub fn size(bytes: i64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".into(), "long value".into()], vec!["longer".into(), "v".into()]];
        assert_eq!(lay_out(&["KEY", "VALUE"], &rows, 80), "KEY     VALUE\na       long value\nlonger  v\n");
        assert_eq!(lay_out(&["KEY", "VALUE"], &rows, 5), "KEY    VALUE\na      long…\nlong…  v\n");
    }

    #[test]
    fn what_would_garble_a_terminal_is_escaped() {
        assert_eq!(shown("schlüssel/1".as_bytes()), "schlüssel/1");
        assert_eq!(shown(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown(b"\\ \xff\x00"), "\\\\ \\xff\\u{0}");
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        assert_eq!(paint(false, Colour::Bad, "x"), "x");
        assert_eq!(paint(true, Colour::Bad, "x"), "\x1b[31mx\x1b[0m");
    }

    #[test]
    fn yaml_shows_what_json_shows_in_the_same_order() {
        #[derive(Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Answer {
            Get { zebra: u64, ape: &'static str },
        }
        let answers = vec![Answer::Get { zebra: u64::MAX, ape: "x" }];
        let yaml = serde_norway::to_string(&as_json(&answers).expect("plain data")).expect("plain data");
        assert_eq!(yaml, "- get:\n    zebra: 18446744073709551615\n    ape: x\n");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(24576), "24.0 KiB");
        assert_eq!(size(2 << 30), "2.0 GiB");
    }
}
