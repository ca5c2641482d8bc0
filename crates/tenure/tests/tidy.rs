//! The house rules as tests. STYLE.md gives the reason of each.
//!
//! A rule looks at a [`Repository`], which is nothing but names and contents, and says what it does not like. So a
//! sample for a rule is a small repository too, and [`judge`] asks each rule first about one that is bad and one
//! that is good: a rule that cannot fail is no rule.

#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/sources.rs"]
mod sources;
#[path = "tidy/tree.rs"]
mod tree;

use crate::repository::Repository;

/// What a rule does not like: where, and what.
type Complaints = Vec<String>;

/// Files of a sample: name and contents.
type Sample<'a> = &'a [(&'a str, &'a str)];

/// Sees the rule refuse what is bad, each sample by itself, and accept what is good; then asks it about this repository.
fn judge(rule: fn(&Repository) -> Complaints, bad: &[Sample], good: Sample) {
    assert!(!bad.is_empty(), "a rule needs a sample that it refuses");
    for sample in bad {
        let complaints = rule(&Repository::of(sample));
        assert!(!complaints.is_empty(), "the rule accepts a bad sample: {sample:?}");
    }
    let complaints = rule(&Repository::of(good));
    assert!(complaints.is_empty(), "the rule refuses a good sample: {complaints:?}");

    let complaints = rule(Repository::here());
    assert!(complaints.is_empty(), "see STYLE.md:\n  {}", complaints.join("\n  "));
}
