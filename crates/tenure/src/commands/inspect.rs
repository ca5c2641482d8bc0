//! `check` and `export`: what is in the data directory of a server that does not run.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result};
use tenure_server::inspect::{self, Exported, Finding, InspectError, Report};

use crate::{
    cli::{Check, Export},
    exit::{self, Failure},
    print::{self, Colour, Format, Out},
};

pub fn check(args: &Check, out: &mut Out) -> Result<()> {
    let report = inspect::check(&args.dir).map_err(unwrapped)?;
    match out.format() {
        Format::Table => table(&report, &args.dir, out)?,
        // The names of what is damaged.
        Format::Name => {
            for finding in &report.findings {
                out.line(&finding.file)?;
            }
        }
        Format::Json | Format::Yaml => out.document(&report)?,
    }
    match report.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Silent(u8::try_from(code).unwrap_or(exit::ERROR)).into()),
    }
}

fn table(report: &Report, dir: &Path, out: &mut Out) -> Result<()> {
    let Report { cluster, member, boot, checkpoint, log, findings } = report;
    let rows = [
        ["directory".to_owned(), dir.display().to_string()],
        ["member".to_owned(), format!("{member} of cluster {cluster}, started {}", times(*boot))],
        [
            "checkpoint".to_owned(),
            format!(
                "up to entry {}, revision {}, {} rows",
                checkpoint.applied, checkpoint.revision, checkpoint.rows
            ),
        ],
        [
            "log".to_owned(),
            format!(
                "{} segments, {} entries behind the checkpoint, the last one {}{}",
                log.segments,
                log.entries,
                log.last_index,
                if log.torn > 0 { ", and a write that was cut off before it counted" } else { "" }
            ),
        ],
    ];
    for [name, what] in &rows {
        out.line(&format!("{} {what}", out.paint(Colour::Heading, &format!("{name:<11}"))))?;
    }
    out.line("")?;
    if findings.is_empty() {
        let good = out.paint(Colour::Good, "sound");
        out.line(&format!("{good}: a server would start on it"))?;
        return Ok(());
    }
    let bad = out.paint(Colour::Bad, "damaged");
    out.line(&format!(
        "{bad}: no server starts on it; restore a copy, or take out what is readable (tenure export)"
    ))?;
    let row =
        |finding: &Finding| vec![finding.file.clone(), finding.offset.to_string(), finding.what.clone()];
    out.table(&["FILE", "OFFSET", "WHAT"], &findings.iter().map(row).collect::<Vec<_>>())?;
    Ok(())
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

pub fn export(args: &Export) -> Result<()> {
    let exported = match &args.out {
        None => inspect::export(&args.dir, &mut BufWriter::new(io::stdout().lock())).map_err(unwrapped)?,
        Some(path) => {
            // Never over something else, and for nobody else: everything that was in the store is in it.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let file = file.with_context(|| format!("{} cannot be made", path.display()))?;
            let mut file = BufWriter::new(file);
            let exported = inspect::export(&args.dir, &mut file).map_err(unwrapped)?;
            file.flush()?;
            file.get_ref().sync_all()?;
            exported
        }
    };
    let Exported { keys, leases, is_complete } = exported;
    print::note(&format!("{keys} keys, {leases} leases"));
    if is_complete {
        return Ok(());
    }
    print::warn("the directory is damaged: what could not be read is missing (tenure check says where)");
    Err(Failure::Silent(exit::DAMAGED).into())
}

/// A reader that went away is known by its own error.
fn unwrapped(error: InspectError) -> anyhow::Error {
    match error {
        InspectError::Io(error) => error.into(),
        other => other.into(),
    }
}
