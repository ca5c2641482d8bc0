//! Rules for what is written for people: links, names of code, the changelog, the decisions.

use std::collections::BTreeSet;

use crate::repository::Repository;
use crate::rust::names;
use crate::{Complaints, judge};

fn pages(repository: &Repository) -> impl Iterator<Item = (&str, &str)> {
    repository.texts().filter(|(name, _)| name.ends_with(".md"))
}

/// The page without blocks of code and, if so wished, without code in the line.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    prose
}

/// What a page links to inside the repository: the names of files, without the part after `#`.
fn links(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let prose = prose(text);
    for (at, _) in prose.match_indices("](") {
        let target = &prose[at + 2..];
        let target = &target[..target.find(')').unwrap_or(0)];
        let target = target.split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let mut parts: Vec<&str> = name.split('/').collect();
        parts.pop();
        for part in target.trim_end_matches('/').split('/') {
            match part {
                "." => {}
                // A link out of the repository keeps its `..`, and so leads nowhere.
                ".." if parts.is_empty() => parts.push(part),
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        found.push(parts.join("/"));
    }
    found
}

fn broken_links(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in pages(repository) {
        for link in links(name, text) {
            if !repository.contains(&link) && !repository.has_folder(&link) {
                complaints.push(format!("{name}: links to {link}, which is not there"));
            }
        }
    }
    complaints
}

#[test]
fn every_link_leads_somewhere() {
    judge(
        broken_links,
        &[
            &[("README.md", "[a](docs/a.md)\n")],
            &[("docs/a.md", "[a](README.md)\n"), ("README.md", "")],
            &[("docs/a.md", "[a](../../README.md#b)\n"), ("README.md", "")],
        ],
        &[
            (
                "README.md",
                "[a](docs/a.md#part) [b](https://example.com/c) [c](docs/) [d](#here)\n```\n[e](f)\n```\n",
            ),
            ("docs/a.md", "[a](../README.md)\n"),
        ],
    );
}

/// Each page below docs/ can be reached by links from the README or from docs/README.md.
fn lonely_pages(repository: &Repository) -> Complaints {
    let mut reached = BTreeSet::new();
    let mut todo = vec!["README.md".to_string(), "docs/README.md".to_string()];
    while let Some(page) = todo.pop() {
        if let Some(text) = repository.text(&page)
            && reached.insert(page.clone())
            && (page == "README.md" || page.ends_with("/README.md"))
        {
            todo.extend(links(&page, text).into_iter().filter(|link| link.ends_with(".md")));
        }
    }
    let lonely = pages(repository).filter(|(name, _)| name.starts_with("docs/") && !reached.contains(*name));
    lonely.map(|(name, _)| format!("{name}: neither README.md nor docs/README.md leads to it")).collect()
}

#[test]
fn every_page_can_be_found() {
    judge(
        lonely_pages,
        &[
            &[("README.md", "see docs/a.md\n"), ("docs/a.md", "")],
            &[("README.md", "[a](docs/a.md)\n"), ("docs/a.md", "[b](b.md)\n"), ("docs/b.md", "")],
        ],
        &[
            ("README.md", "[docs](docs/README.md)\n"),
            ("docs/README.md", "[a](a.md) [b](b/README.md)\n"),
            ("docs/a.md", ""),
            ("docs/b/README.md", "[c](c.md)"),
            ("docs/b/c.md", ""),
        ],
    );
}

/// Code that a page names: `crates/…/file.rs:symbol`, or a link on a symbol, [`symbol`](…/file.rs). Each with its file.
fn symbols(name: &str, text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for span in text.split('`').skip(1).step_by(2) {
        if let Some((file, symbol)) = span.split_once(".rs:") {
            found.push((format!("{file}.rs"), symbol.to_string()));
        }
    }
    for link in text.split("[`").skip(1) {
        let Some((symbol, rest)) = link.split_once("`](") else { continue };
        let Some(file) = links(name, &format!("[]({rest}")).into_iter().next() else { continue };
        if file.ends_with(".rs") && !symbol.ends_with(".rs") {
            found.push((file, symbol.to_string()));
        }
    }
    found
}

fn missing_symbols(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    for (name, text) in pages(repository) {
        for (file, symbol) in symbols(name, text) {
            let Some(code) = repository.text(&file) else {
                complaints.push(format!("{name}: names {symbol} of {file}, which is not there"));
                continue;
            };
            let missing = symbol.split("::").any(|part| part.is_empty() || !names(code, part));
            if symbol.starts_with(|c: char| c.is_ascii_digit()) || missing {
                complaints.push(format!("{name}: names {symbol}, which {file} does not"));
            }
        }
    }
    complaints
}

#[test]
fn every_symbol_that_a_page_names_is_there() {
    let code = ("crates/a/src/b.rs", "impl Loop { fn turn(&self) {} }\n");
    judge(
        missing_symbols,
        &[
            &[code, ("docs/a.md", "`crates/a/src/b.rs:turns`\n")],
            &[code, ("docs/a.md", "`crates/a/src/b.rs:Loop::step`\n")],
            &[code, ("docs/a.md", "`crates/a/src/c.rs:turn`\n")],
            &[code, ("docs/a.md", "`crates/a/src/b.rs:12`\n")],
            &[
                code,
                (
                    "docs/a.md",
                    "see [`Loop::turn`](../crates/a/src/b.rs) and [`Loop::step`](../crates/a/src/b.rs).\n",
                ),
            ],
        ],
        &[
            code,
            (
                "docs/a.md",
                "`crates/a/src/b.rs:Loop::turn`, then `turn` or [`Loop::turn`](../crates/a/src/b.rs) or [`b.rs`](../crates/a/src/b.rs)\n",
            ),
        ],
    );
}

fn changelog(repository: &Repository) -> Complaints {
    let Some(text) = repository.text("CHANGELOG.md") else {
        return vec!["CHANGELOG.md is missing".to_string()];
    };
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let mut complaints = Vec::new();
    if headings.first() != Some(&"# Changelog") || headings.len() < 5 {
        complaints.push("CHANGELOG.md: `# Changelog`, then releases".to_string());
    }
    for release in headings.get(1..).unwrap_or_default().chunks(4) {
        let numbered = release[0].strip_prefix("## ").is_some_and(|title| {
            let (version, date) = title.split_once(" (").unwrap_or((title, ""));
            let date = date.trim_end_matches(')');
            let dated = date == "unreleased" || date.len() == 10 && date.split('-').count() == 3;
            dated
                && version.split('.').count() == 3
                && version.split('.').all(|part| part.parse::<u32>().is_ok())
        });
        if !numbered {
            complaints.push(format!(
                "CHANGELOG.md: {}: not `## 1.2.3 (unreleased)` or `## 1.2.3 (2026-12-31)`",
                release[0]
            ));
        }
        if release[1..] != ["### Safety", "### Features", "### Internals"] {
            complaints.push(format!("CHANGELOG.md: {}: not Safety, Features, Internals", release[0]));
        }
    }
    complaints
}

#[test]
fn the_changelog_has_its_shape() {
    let good = "# Changelog\n## 0.1.0 (unreleased)\n### Safety\n- a\n### Features\n### Internals\n";
    judge(
        changelog,
        &[
            &[],
            &[("CHANGELOG.md", "# Changelog\n")],
            &[("CHANGELOG.md", &good.replace("0.1.0 (unreleased)", "Next"))],
            &[("CHANGELOG.md", &good.replace("### Safety\n", ""))],
            &[(
                "CHANGELOG.md",
                &good.replace("### Features\n", "").replace("### Internals", "### Internals\n### Features"),
            )],
        ],
        &[("CHANGELOG.md", good)],
    );
}

fn decisions(repository: &Repository) -> Complaints {
    let mut complaints = Vec::new();
    let mut numbers = BTreeSet::new();
    for (name, text) in pages(repository) {
        let Some(page) = name.strip_prefix("docs/decisions/").filter(|page| *page != "README.md") else {
            continue;
        };
        let (number, _) = page.split_once('-').unwrap_or((page, ""));
        if number.len() != 4 || number.parse::<u32>().is_err() || !numbers.insert(number) {
            complaints.push(format!("{name}: not a number of four digits of its own, then the name"));
        }
        for part in ["## Why", "## Decision", "## What it costs"] {
            if !text.lines().any(|line| line == part) {
                complaints.push(format!("{name}: `{part}` is missing"));
            }
        }
    }
    complaints
}

#[test]
fn decisions_have_a_number_and_their_parts() {
    let good = "# 1. A\n## Why\n## Decision\n## What it costs\n";
    judge(
        decisions,
        &[
            &[("docs/decisions/1-a.md", good)],
            &[("docs/decisions/0001-a.md", good), ("docs/decisions/0001-b.md", good)],
            &[("docs/decisions/0001-a.md", "# 1. A\n## Decision\n## Why\n")],
        ],
        &[
            ("docs/decisions/README.md", ""),
            ("docs/decisions/0000-template.md", good),
            ("docs/decisions/0001-a.md", good),
        ],
    );
}
