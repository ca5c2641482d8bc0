//! `watch`.

use anyhow::Result;
use tenure_client::{Client, Filter, Notice, Watch};
use tokio::sync::watch::Receiver;

use super::key_range;
use crate::{
    cli,
    print::{self, Colour, Format, Out, shown},
    view,
};

pub async fn watch(client: &Client, args: cli::Watch, out: &mut Out) -> Result<()> {
    let mut watch = Watch::new(key_range(args.keys)?).start_revision(args.rev);
    if args.prev_kv {
        watch = watch.prev_kv();
    }
    if args.progress {
        watch = watch.progress_notify();
    }
    for kind in args.without {
        watch = watch.without(match kind {
            cli::Without::Put => Filter::Noput,
            cli::Without::Delete => Filter::Nodelete,
        });
    }
    let mut watcher = client.watch(watch).await?;
    tokio::spawn(tell_outages(watcher.outage()));
    loop {
        match watcher.next().await? {
            Notice::Created { .. } => (),
            Notice::Events { events, .. } => {
                for event in events {
                    show(out, event.into())?;
                }
            }
            Notice::Progress { revision } if args.progress => match out.format() {
                Format::Table => out.line(&format!("{revision:>8}  nothing more up to here"))?,
                Format::Name => (),
                Format::Json | Format::Yaml => out.event(&view::Progress { kind: "PROGRESS", revision })?,
            },
            Notice::Progress { .. } => (),
        }
        // Somebody is looking, or a pipe is waiting.
        out.flush()?;
    }
}

/// A line when the server is lost and a line when it is back, for whoever wonders why nothing comes.
async fn tell_outages(mut outage: Receiver<Option<String>>) {
    let mut is_lost = false;
    while outage.changed().await.is_ok() {
        let why = outage.borrow_and_update().clone();
        match why {
            Some(why) if !is_lost => print::warn(&format!("lost the server ({why}), trying again")),
            None if is_lost => print::note("the server is back; nothing was missed"),
            // Both came between two looks.
            _ => continue,
        }
        is_lost = !is_lost;
    }
}

fn show(out: &mut Out, event: view::Event) -> Result<()> {
    match out.format() {
        Format::Table => {
            let key = shown(&event.kv.key.0);
            let mut text = if event.kind == "PUT" {
                let kind = out.paint(Colour::Good, "PUT");
                format!("{:>8}  {kind}     {key} = {}", event.revision, shown(&event.kv.value.0))
            } else {
                let kind = out.paint(Colour::Bad, "DELETE");
                format!("{:>8}  {kind}  {key}", event.revision)
            };
            if let Some(lease) = &event.kv.lease {
                text.push_str(&format!("  (lease {lease})"));
            }
            if let Some(previous) = &event.prev_kv {
                text.push_str(&format!("  (was {})", shown(&previous.value.0)));
            }
            out.line(&text)?;
        }
        Format::Name => out.line(&shown(&event.kv.key.0))?,
        Format::Json | Format::Yaml => out.event(&event)?,
    }
    Ok(())
}
