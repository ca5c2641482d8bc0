//! Machines' clocks. True time, called H, is known to the simulator only: it counts nanoseconds from the start of a
//! run. Each machine has its own epoch and its own rate, so that comparing the times of two is visibly wrong.

use tenure_state::ids::Nanos;

pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000 * MS;

/// How far from true a clock may run: what the promises allow for.
pub const RHO_PPM: u64 = 500;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: u64,
    /// Parts per million that it is too fast.
    fast_ppm: i64,
}

impl Clock {
    pub fn new(epoch: u64, fast_ppm: i64) -> Clock {
        assert!(fast_ppm.unsigned_abs() <= RHO_PPM, "a clock outside of what is promised");
        Clock { epoch, fast_ppm }
    }

    /// What it shows at H.
    pub fn at(self, h: u64) -> Nanos {
        let shown = i128::from(h) + i128::from(h) * i128::from(self.fast_ppm) / 1_000_000;
        Nanos(self.epoch + shown as u64)
    }

    /// The first H at which it shows this.
    pub fn when(self, local: Nanos) -> u64 {
        let passed = i128::from(local.0.saturating_sub(self.epoch));
        let mut h = (passed * 1_000_000 / i128::from(1_000_000 + self.fast_ppm)) as u64;
        while self.at(h) < local {
            h += 1;
        }
        h
    }

    /// How long the machine must wait to see `span` pass.
    pub fn span(self, span: u64) -> u64 {
        (i128::from(span) * 1_000_000 / i128::from(1_000_000 + self.fast_ppm)) as u64
    }
}

/// The least and the most H that passes while any allowed clock shows `span`.
pub fn shortest(span: u64) -> u64 {
    span.saturating_sub(span / 1_000_000 * RHO_PPM + RHO_PPM)
}

pub fn longest(span: u64) -> u64 {
    span + span / 1_000_000 * (RHO_PPM + 1) + RHO_PPM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_moment_that_shows_it() {
        for ppm in [-500, 0, 17, 500] {
            let clock = Clock::new(77_000, ppm);
            for h in [0, 1, 999, 12_345_678, 3_600 * SEC] {
                let shown = clock.at(h);
                assert!(clock.when(shown) <= h && clock.at(clock.when(shown)) == shown);
            }
        }
    }

    #[test]
    fn any_allowed_clock_stays_within_the_bounds() {
        for ppm in [-500, 500] {
            let passed = Clock::new(0, ppm).span(10 * SEC);
            assert!(shortest(10 * SEC) <= passed && passed <= longest(10 * SEC), "{passed}");
        }
    }
}
