//! A seed is a run: the same in every process, or no failure can be seen again.

use std::process::Command;

fn hashes(seeds: u64) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-sim"))
        .args(["--seeds", &seeds.to_string(), "--from", "11", "--hash"])
        .output()
        .expect("the simulator was built for this test");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let hashes: Vec<&str> = text.lines().filter(|line| line.contains("hash")).collect();
    assert_eq!(hashes.len(), seeds as usize, "{text}{}", String::from_utf8_lossy(&output.stderr));
    hashes.join("\n")
}

#[test]
fn the_same_seed_is_the_same_run_in_two_processes() {
    assert_eq!(hashes(6), hashes(6));
}

#[test]
fn the_same_seed_is_the_same_run_twice_in_one_process() {
    let (first, second) = (tenure_sim::run(3, None, false), tenure_sim::run(3, None, false));
    assert_eq!(first.hash, second.hash);
    assert_ne!(first.hash, tenure_sim::run(4, None, false).hash);
}
