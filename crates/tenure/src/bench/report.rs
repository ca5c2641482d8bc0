//! What comes out: a table for people, a JSON document for programs, Markdown for the documentation. Every figure has a name that goals,
//! JSON and tables agree on.

use std::{collections::BTreeMap, fs, io::Write, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    args::{Goal, Shared},
    stats::{Histogram, ratio},
    target::Target,
};
use crate::{
    exit::{self, Failure},
    print::{Colour, Format, Out},
};

/// One thing that can be measured.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    label: &'static str,
    decimals: usize,
    /// Whether it makes sense to divide one server's by the other's.
    compared: bool,
}

const fn metric(name: &'static str, label: &'static str, decimals: usize, compared: bool) -> Metric {
    Metric { name, label, decimals, compared }
}

/// In the order of the table.
const METRICS: &[Metric] = &[
    metric("ops", "operations", 0, false),
    metric("errors", "errors", 0, false),
    metric("throughput_per_s", "throughput, 1/s", 0, true),
    metric("latency_p50_ms", "latency p50, ms", 3, true),
    metric("latency_p90_ms", "latency p90, ms", 3, true),
    metric("latency_p99_ms", "latency p99, ms", 3, true),
    metric("latency_p999_ms", "latency p99.9, ms", 3, true),
    metric("latency_max_ms", "latency max, ms", 3, true),
    metric("granted_ttl_s", "time to live granted, s", 0, false),
    metric("leases", "leases", 0, false),
    metric("renewals", "renewals", 0, false),
    metric("lost", "lost leases", 0, false),
    metric("unanswered", "renewals not answered in time", 0, false),
    metric("behind_max_ms", "renewals sent late at most, ms", 1, false),
    metric("ended", "leases ended", 0, false),
    metric("seconds_to_end", "seconds until all had ended", 1, true),
    metric("not_ended", "leases not ended in time", 0, false),
    metric("early", "leases ended early", 0, false),
    metric("revisions", "revisions of the ends", 0, false),
    metric("due_spread_ms", "due within, ms", 1, false),
    metric("late_p50_ms", "lateness p50, ms", 1, true),
    metric("late_p99_ms", "lateness p99, ms", 1, true),
    metric("late_max_ms", "lateness max, ms", 1, true),
    metric("last_late_ms", "last key late, ms", 1, true),
    metric("put_p99_ms", "puts meanwhile p99, ms", 3, true),
    metric("put_max_ms", "puts meanwhile max, ms", 3, true),
    metric("puts", "puts meanwhile", 0, false),
    metric("cpu_us_per_op", "server CPU each, µs", 2, true),
    metric("cpu_us_per_op_with_idle", "server CPU each, with idle time, µs", 2, true),
    metric("cpu_us_per_end", "server CPU per ended lease, µs", 2, true),
    metric("cores", "server CPU, cores", 3, true),
    metric("bytes_per_lease", "memory a lease, bytes", 0, true),
    metric("anon_bytes_per_lease", "memory a lease without mapped files, bytes", 0, true),
    metric("bytes_per_key", "memory a key, bytes", 0, true),
    metric("rss_mib", "memory, MiB", 1, true),
    metric("anon_mib", "memory without mapped files, MiB", 1, true),
    metric("client_cpu_us_per_op", "CPU of the bench itself each, µs", 2, false),
];

impl Metric {
    pub fn find(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    pub fn names() -> String {
        METRICS.iter().map(|metric| metric.name).collect::<Vec<_>>().join(", ")
    }
}

/// The figures of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub fn new() -> Figures {
        Figures::default()
    }

    pub fn set(&mut self, name: &str, value: f64) {
        assert!(Metric::find(name).is_some(), "{name} is not in the list of metrics");
        self.0.insert(name.to_owned(), value);
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub fn set_latency(&mut self, latency: &Histogram) {
        if latency.count() == 0 {
            return;
        }
        for (name, share) in [
            ("latency_p50_ms", 0.5),
            ("latency_p90_ms", 0.9),
            ("latency_p99_ms", 0.99),
            ("latency_p999_ms", 0.999),
        ] {
            self.set(name, ms(latency.percentile(share)));
        }
        self.set("latency_max_ms", ms(latency.max()));
    }
}

pub fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    pub name: String,
    pub endpoint: String,
    pub version: String,
    pub pids: Vec<u32>,
    pub figures: Figures,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Verdict {
    goal: String,
    /// `None`: it was not measured.
    value: Option<f64>,
    met: bool,
}

/// All of one run, and the JSON document that says it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// What was run, without the program's path.
    command: String,
    unix_s: u64,
    servers: Vec<Server>,
    /// First server / second.
    ratios: Figures,
    goals: Vec<Verdict>,
}

impl Document {
    pub fn new(command: String, unix_s: u64, servers: Vec<Server>, goals: &[Goal]) -> Document {
        let mut ratios = Figures::new();
        if let [ours, theirs] = &servers[..] {
            for metric in METRICS.iter().filter(|metric| metric.compared) {
                let both = ours.figures.get(metric.name).zip(theirs.figures.get(metric.name));
                if let Some(ratio) = both.and_then(|(ours, theirs)| ratio(ours, theirs)) {
                    ratios.set(metric.name, ratio);
                }
            }
        }
        let judge = |goal: &Goal| {
            let figures =
                if goal.ratio { Some(&ratios) } else { servers.first().map(|first| &first.figures) };
            let value = figures.and_then(|figures| figures.get(&goal.metric));
            Verdict { goal: goal.text(), value, met: value.is_some_and(|value| goal.is_met_by(value)) }
        };
        let goals = goals.iter().map(judge).collect();
        Document { command, unix_s, servers, ratios, goals }
    }

    fn rows(&self) -> (Vec<&str>, Vec<Vec<String>>) {
        let mut heading = vec![""];
        heading.extend(self.servers.iter().map(|server| server.name.as_str()));
        if self.servers.len() == 2 {
            heading.push("ratio");
        }
        let mut rows = Vec::new();
        for metric in METRICS {
            let values: Vec<_> = self.servers.iter().map(|server| server.figures.get(metric.name)).collect();
            if values.iter().all(Option::is_none) {
                continue;
            }
            let mut row = vec![metric.label.to_owned()];
            row.extend(values.iter().map(|value| shown(*value, metric.decimals)));
            if self.servers.len() == 2 {
                row.push(self.ratios.get(metric.name).map_or(String::new(), |ratio| number(ratio, 3)));
            }
            rows.push(row);
        }
        (heading, rows)
    }

    fn goal_rows(&self) -> Vec<Vec<String>> {
        let row = |verdict: &Verdict| {
            let result = if verdict.met { "met" } else { "MISSED" };
            let value = verdict.value.map_or("not measured".to_owned(), |value| number(value, 3));
            vec![verdict.goal.clone(), value, result.to_owned()]
        };
        self.goals.iter().map(row).collect()
    }

    /// Prints it, and fails if a goal was missed.
    pub fn print(&self, shared: &Shared, out: &mut Out) -> Result<()> {
        if let Some(path) = &shared.json {
            self.write(path)?;
        }
        match out.format() {
            Format::Json | Format::Yaml => out.document(self)?,
            Format::Name | Format::Table => {
                let (heading, rows) = self.rows();
                out.table(&heading, &rows)?;
                for row in self.goal_rows() {
                    let colour = if row[2] == "met" { Colour::Good } else { Colour::Bad };
                    let line = format!("{}  {} ({})", out.paint(colour, &row[2]), row[0], row[1]);
                    out.line(&line)?;
                }
            }
        }
        if self.goals.iter().all(|verdict| verdict.met) {
            Ok(())
        } else {
            Err(Failure::Silent(exit::ERROR).into())
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        writeln!(text)?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn read(path: &Path) -> Result<Document> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not the JSON of a run", path.display()))
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("### `tenure {}`\n\n", self.command);
        let (heading, rows) = self.rows();
        text += &markdown_table(&heading, &rows);
        if !self.goals.is_empty() {
            text += "\n";
            text += &markdown_table(&["goal", "measured", ""], &self.goal_rows());
        }
        text
    }
}

pub fn server(target: &Target, figures: Figures) -> Server {
    Server {
        name: target.name.clone(),
        endpoint: target.endpoint.clone(),
        version: target.version.clone(),
        pids: target.pids.clone(),
        figures,
    }
}

fn markdown_table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(heading.to_vec());
    let mut rule = vec!["---:"; heading.len()];
    rule[0] = "---";
    text += &line(rule);
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| number(value, decimals))
}

/// With commas between the thousands, because 100000 and 1000000 look alike.
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{sign}{grouped}.{fraction}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, figures: &[(&str, f64)]) -> Server {
        let mut all = Figures::new();
        for (name, value) in figures {
            all.set(name, *value);
        }
        Server {
            name: name.into(),
            endpoint: "http://127.0.0.1:1".into(),
            version: "3.7.3".into(),
            pids: vec![7],
            figures: all,
        }
    }

    fn document() -> Document {
        let servers = vec![
            server("tenure", &[("cpu_us_per_op", 15.0), ("ops", 2_000_000.0)]),
            server("etcd", &[("cpu_us_per_op", 60.0), ("ops", 500_000.0), ("latency_p99_ms", 4.0)]),
        ];
        let goals =
            ["cpu_us_per_op.ratio<=0.35", "ops>=3000000", "lost<=0"].map(|goal| goal.parse().unwrap());
        Document::new("bench put".into(), 1_800_000_000, servers, &goals)
    }

    #[test]
    fn the_shape_of_the_json_is_what_programs_were_told() {
        let json = serde_json::to_value(document()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "command": "bench put",
                "unix_s": 1_800_000_000,
                "servers": [
                    {"name": "tenure", "endpoint": "http://127.0.0.1:1", "version": "3.7.3", "pids": [7],
                     "figures": {"cpu_us_per_op": 15.0, "ops": 2_000_000.0}},
                    {"name": "etcd", "endpoint": "http://127.0.0.1:1", "version": "3.7.3", "pids": [7],
                     "figures": {"cpu_us_per_op": 60.0, "ops": 500_000.0, "latency_p99_ms": 4.0}},
                ],
                "ratios": {"cpu_us_per_op": 0.25},
                "goals": [
                    {"goal": "cpu_us_per_op.ratio<=0.35", "value": 0.25, "met": true},
                    {"goal": "ops>=3000000", "value": 2_000_000.0, "met": false},
                    {"goal": "lost<=0", "value": null, "met": false},
                ],
            })
        );
    }

    #[test]
    fn a_document_is_read_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        document().write(&path).unwrap();
        assert_eq!(Document::read(&path).unwrap(), document());
        fs::write(&path, "{}").unwrap();
        assert!(Document::read(&path).is_err());
    }

    #[test]
    fn the_table_shows_both_servers_and_what_is_missing() {
        let (heading, rows) = (document().rows().0.join("|"), document().rows().1);
        assert_eq!(heading, "|tenure|etcd|ratio");
        assert_eq!(rows[0], ["operations", "2,000,000", "500,000", ""]);
        assert_eq!(rows[1], ["latency p99, ms", "-", "4.000", ""]);
        assert_eq!(rows[2], ["server CPU each, µs", "15.00", "60.00", "0.250"]);
    }

    #[test]
    fn one_server_alone_has_no_ratios() {
        let alone = Document::new("bench put".into(), 0, vec![server("tenure", &[("ops", 1.0)])], &[]);
        assert_eq!(alone.rows().0, ["", "tenure"]);
        assert_eq!(alone.rows().1, [["operations", "1"]]);
    }

    #[test]
    fn a_goal_that_was_missed_is_marked_in_markdown() {
        let text = document().markdown();
        assert!(text.starts_with(
            "### `tenure bench put`\n\n|  | tenure | etcd | ratio |\n| --- | ---: | ---: | ---: |\n"
        ));
        assert!(text.contains("| cpu_us_per_op.ratio<=0.35 | 0.250 | met |\n"));
        assert!(text.contains("| lost<=0 | not measured | MISSED |\n"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(0.0, 0), "0");
        assert_eq!(number(999.0, 0), "999");
        assert_eq!(number(1_234_567.0, 0), "1,234,567");
        assert_eq!(number(1_234.5, 2), "1,234.50");
        assert_eq!(number(-1_234.5, 1), "-1,234.5");
    }

    #[test]
    fn no_metric_is_listed_twice() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
