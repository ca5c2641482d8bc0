//! The verbs. Each file turns one group of them into requests and prints what came back.

mod inspect;
mod kv;
mod lease;
mod program;
mod status;
mod txn;
mod txn_script;
mod watch;

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use anyhow::Result;
use tenure_client::{Client, KeyRange, Options};

use crate::{
    bench,
    cli::{Cli, Command, Global, Keys},
    exit::Failure,
    print::Out,
    serve::{self, Verb},
};

pub fn run(cli: Cli, out: &mut Out) -> Result<()> {
    if cli.version {
        return program::etcd_version(out);
    }
    let Some(command) = cli.command else {
        return Err(Failure::Usage("no command given; see tenure --help".into()).into());
    };
    let command = match command {
        Command::Serve(args) => return serve::run(Verb::Serve, args.flags),
        Command::Dev(args) => return serve::run(Verb::Dev, args.flags),
        Command::Check(args) => return inspect::check(&args, out),
        Command::Export(args) => return inspect::export(&args),
        other => other,
    };
    match command {
        Command::Version(_) => return program::version(out),
        Command::Completion(completion) => return program::completion(&completion, out),
        Command::Bench(bench) => return bench::run(&bench, &cli.global, out),
        _ => (),
    }
    let client = connect(&cli.global)?;
    // One client has one connection and waits for it most of the time: more threads would have nothing to do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Put(put) => kv::put(&client, put, out).await,
            Command::Get(get) => kv::get(&client, get, out).await,
            Command::Del(del) => kv::del(&client, del, out).await,
            Command::Txn(txn) => txn::txn(&client, txn, out).await,
            Command::Watch(watch) => watch::watch(&client, watch, out).await,
            Command::Compact(compact) => kv::compact(&client, &compact, out).await,
            Command::Lease(lease) => lease::lease(&client, lease, out).await,
            Command::Status(_) => status::status(&client, out).await,
            Command::Serve(_)
            | Command::Dev(_)
            | Command::Check(_)
            | Command::Export(_)
            | Command::Version(_)
            | Command::Completion(_)
            | Command::Bench(_) => Ok(()),
        }
    })
}

fn connect(global: &Global) -> Result<Client> {
    let options = Options {
        dial_timeout: global.dial_timeout().map_err(Failure::Usage)?,
        request_timeout: global.command_timeout().map_err(Failure::Usage)?,
    };
    Ok(Client::new(global.endpoints(), options)?)
}

/// An argument is bytes; it need not be text.
fn bytes(argument: OsString) -> Vec<u8> {
    argument.into_vec()
}

fn key_range(keys: Keys) -> Result<KeyRange> {
    let Keys { key, range_end, prefix, from_key } = keys;
    let key = bytes(key);
    Ok(match range_end {
        Some(end) => KeyRange::between(key, bytes(end)),
        None if prefix => KeyRange::prefix(key),
        None if from_key => KeyRange::from(key),
        None if key.is_empty() => {
            return Err(Failure::Usage("a key cannot be empty; -p '' means every key".into()).into());
        }
        None => KeyRange::one(key),
    })
}
