//! What needs no server: `version`, `--version`, `completion`.

use std::env::consts::{ARCH, OS};

use anyhow::Result;
use clap::CommandFactory;
use serde::Serialize;
use tenure_server::identity::ETCD_VERSION;

use crate::{
    cli::{Cli, Completion},
    print::{Format, Out},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize)]
struct Version {
    tenure: &'static str,
    etcd: &'static str,
    os: &'static str,
    arch: &'static str,
}

pub fn version(out: &mut Out) -> Result<()> {
    let version = Version { tenure: VERSION, etcd: ETCD_VERSION, os: OS, arch: ARCH };
    match out.format() {
        Format::Table => out.line(&format!("tenure {VERSION} (etcd API {ETCD_VERSION}, {OS}/{ARCH})"))?,
        Format::Name => out.line(VERSION)?,
        Format::Json | Format::Yaml => out.document(&version)?,
    }
    Ok(())
}

/// Scripts that start an etcd read its version from the first line, and four lines are what they expect.
pub fn etcd_version(out: &mut Out) -> Result<()> {
    out.line(&format!("etcd Version: {ETCD_VERSION}"))?;
    out.line(&format!("Tenure Version: {VERSION}"))?;
    out.line(&format!("Rust Version: {} or later", env!("CARGO_PKG_RUST_VERSION")))?;
    out.line(&format!("OS/Arch: {OS}/{ARCH}"))?;
    Ok(())
}

pub fn completion(args: &Completion, out: &mut Out) -> Result<()> {
    // Into memory first: the generator panics when its writer fails, and a pipe may.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    out.raw(&script)?;
    Ok(())
}
