//! `txn`: where the transaction comes from, and how its outcome is shown. How it is written is in `txn_script.rs`.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, Result};
use tenure_client::{
    Client, Txn,
    etcdserverpb::{TxnResponse, response_op},
};

use super::{
    kv,
    txn_script::{self, Part, Script},
};
use crate::{
    cli,
    exit::Failure,
    print::{self, Colour, Format, Out},
    view,
};

pub async fn txn(client: &Client, args: cli::Txn, out: &mut Out) -> Result<()> {
    let Script { txn, has_failure_part } = read(&args)?;
    let response = client.txn(txn).await?;
    let succeeded = response.succeeded;
    match out.format() {
        Format::Table => outcome(out, response)?,
        Format::Name => out.line(if succeeded { "success" } else { "failure" })?,
        Format::Json | Format::Yaml => out.document(&view::Txn::from(response))?,
    }
    if !succeeded && !has_failure_part {
        return Err(Failure::Conflict("the comparisons do not hold, so nothing was done".into()).into());
    }
    Ok(())
}

fn read(args: &cli::Txn) -> Result<Script> {
    let mut text = String::new();
    match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        }
        None if io::stdin().is_terminal() => return ask(),
        _ => {
            io::stdin().read_to_string(&mut text).context("standard input")?;
        }
    }
    Ok(txn_script::parse(&text).map_err(Failure::Usage)?)
}

/// Part by part on a terminal, so that a slip can be corrected before it does anything.
fn ask() -> Result<Script> {
    let mut script = Script { txn: Txn::new(), has_failure_part: false };
    let mut lines = io::stdin().lock().lines();
    for part in Part::ALL {
        print::note(&format!("{} (an empty line ends them):", part.title()));
        loop {
            let line = match lines.next() {
                Some(line) => line?,
                None => String::new(),
            };
            if line.trim().is_empty() {
                break;
            }
            match script.clone().with_line(part, &line) {
                Ok(longer) => script = longer,
                Err(why) => print::note(&format!("not taken: {why}")),
            }
        }
    }
    Ok(script)
}

fn outcome(out: &mut Out, response: TxnResponse) -> Result<()> {
    let verdict = if response.succeeded {
        out.paint(Colour::Good, "SUCCESS")
    } else {
        out.paint(Colour::Bad, "FAILURE")
    };
    out.line(&verdict)?;
    for op in response.responses {
        out.line("")?;
        match op.response {
            Some(response_op::Response::ResponseRange(range)) => kv::range_table(out, &range, false)?,
            Some(response_op::Response::ResponsePut(put)) => {
                out.line("OK")?;
                if let Some(previous) = put.prev_kv {
                    kv::key_value_table(out, &[previous], false)?;
                }
            }
            Some(response_op::Response::ResponseDeleteRange(delete)) => {
                out.line(&format!("deleted {}", delete.deleted))?;
                if !delete.prev_kvs.is_empty() {
                    kv::key_value_table(out, &delete.prev_kvs, false)?;
                }
            }
            Some(response_op::Response::ResponseTxn(inner)) => outcome(out, inner)?,
            None => (),
        }
    }
    Ok(())
}
