//! The program `tenure`. What it was asked to do is parsed here, done in `commands/`, and turned into an exit code that scripts can
//! rely on.

mod bench;
mod cli;
mod commands;
mod duration;
mod exit;
mod print;
mod serve;
mod view;

use std::{env, process::ExitCode};

use clap::Parser;

use crate::{cli::Cli, print::Out};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Servers take etcd's flags, which clap would not read as etcd does.
    if let Some((verb, args)) = serve::asked_for(env::args_os()) {
        return ended(serve::run(verb, args));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output and is no error; the rest is wrong usage. Neither may fail because nobody reads it.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::ERROR));
        }
    };
    let mut out = Out::new(cli.global.output);
    let done = commands::run(cli, &mut out).and_then(|()| Ok(out.flush()?));
    if done.is_err() {
        // What was printed before the failure still belongs to the answer.
        let _ = out.flush();
    }
    ended(done)
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !exit::is_silent(&error) {
                print::error(&error);
            }
            ExitCode::from(exit::code(&error))
        }
    }
}
