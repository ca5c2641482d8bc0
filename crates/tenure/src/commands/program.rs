//! What needs no server: `version`, `--version`, `completion`.

use std::env::consts::{ARCH, OS};

use anyhow::Result;
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint, builder::PossibleValuesParser};
use serde::Serialize;
use tenure_server::{config, identity::ETCD_VERSION};

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
    clap_complete::generate(args.shell, &mut offered(), "tenure", &mut script);
    out.raw(&script)?;
    Ok(())
}

/// The command as a shell should offer it: servers take etcd's flags, which clap does not know, and none of the client's options.
fn offered() -> Command {
    let command = Cli::command();
    let globals: Vec<Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .map(|arg| arg.clone().global(false))
        .collect();
    let command = command.mut_args(|arg| arg.global(false));
    command.mut_subcommands(|verb| match verb.get_name() {
        "serve" => server("serve", &verb),
        "dev" => server("dev", &verb),
        _ => with_options(verb, &globals),
    })
}

/// The options that clap would hand down by itself, if it could leave out some verbs.
fn with_options(verb: Command, globals: &[Arg]) -> Command {
    let verb = verb.mut_subcommands(|inner| with_options(inner, globals));
    verb.args(globals)
}

fn server(name: &'static str, verb: &Command) -> Command {
    let flags = config::offers().map(|flag| {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
        match flag.name {
            _ if !flag.takes_value => arg.action(ArgAction::SetTrue),
            _ if !flag.choices.is_empty() => arg.value_parser(PossibleValuesParser::new(flag.choices)),
            "data-dir" => arg.value_hint(ValueHint::DirPath),
            "config-file" => arg.value_hint(ValueHint::FilePath),
            _ => arg.value_hint(ValueHint::Other),
        }
    });
    let about = verb.get_about().cloned().unwrap_or_default();
    Command::new(name).about(about).args(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_offered_the_servers_flags_for_servers_and_the_clients_for_the_rest() {
        let mut command = offered();
        command.build();
        let options = |path: &[&str]| -> Vec<String> {
            let verb = path.iter().fold(&command, |verb, name| verb.find_subcommand(name).expect("a verb"));
            verb.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
        };
        for server in ["serve", "dev"] {
            let flags = options(&[server]);
            assert!(flags.iter().any(|flag| flag == "listen-client-urls"), "{flags:?}");
            assert!(!flags.iter().any(|flag| flag == "endpoints"), "{flags:?}");
        }
        for client in [&[][..], &["get"], &["lease", "grant"]] {
            let flags = options(client);
            assert!(flags.iter().any(|flag| flag == "endpoints"), "{client:?}: {flags:?}");
            assert!(!flags.iter().any(|flag| flag == "listen-client-urls"), "{flags:?}");
        }
    }
}
