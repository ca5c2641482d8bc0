//! Seeds that failed once, from `seeds.txt`, and a few that never did.

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    for line in include_str!("../seeds.txt").lines() {
        let Some(seed) = line.split_whitespace().next().and_then(|word| word.parse().ok()) else { continue };
        let run = tenure_sim::run(seed, None, false);
        assert_eq!(run.violations, [], "{line}\ncargo run -p tenure-sim --release -- --seed {seed}");
    }
}

#[test]
fn the_first_seeds_are_good() {
    for seed in 1..=12 {
        let run = tenure_sim::run(seed, None, false);
        assert_eq!(run.violations, [], "cargo run -p tenure-sim --release -- --seed {seed}");
    }
}
