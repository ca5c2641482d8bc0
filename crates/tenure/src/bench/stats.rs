//! Latencies in little room, and what is read from them. A histogram has buckets that grow with the value, so that every percentile is
//! right to one part in 128, from nanoseconds to hours, and recording costs no allocation.

/// Buckets for each power of two, as a power of two.
const PRECISION_BITS: u32 = 7;
const BUCKETS_PER_POWER: usize = 1 << PRECISION_BITS;
const BUCKET_COUNT: usize = BUCKETS_PER_POWER * (64 - PRECISION_BITS as usize + 1);

#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram { buckets: vec![0; BUCKET_COUNT], count: 0, max: 0 }
    }

    pub fn record(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// The smallest recorded value that at least `share` of all are not above, rounded up to the end of its bucket: a percentile never
    /// looks better than it was. 0 when nothing was recorded.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_end(index).min(self.max);
            }
        }
        self.max
    }
}

/// Values below `BUCKETS_PER_POWER` have a bucket each; above, a power of two is cut into that many.
fn bucket(value: u64) -> usize {
    let power = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    (power as usize) * BUCKETS_PER_POWER + (value >> power) as usize
}

/// The largest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    if index < 2 * BUCKETS_PER_POWER {
        return index as u64;
    }
    let power = index / BUCKETS_PER_POWER - 1;
    let start = (index - power * BUCKETS_PER_POWER) as u64;
    (start << power) + ((1 << power) - 1)
}

/// `None` where there is nothing to compare with.
pub fn ratio(ours: f64, theirs: f64) -> Option<f64> {
    (theirs != 0.0 && theirs.is_finite() && ours.is_finite()).then(|| ours / theirs)
}

/// `total` shared out over `count` occasions; 0 when there were none.
pub fn each(total: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_ends_just_above_it() {
        for power in 0..64 {
            for value in
                [1u64 << power, (1u64 << power) + 1, (1u64 << power).wrapping_sub(1), u64::MAX >> power]
            {
                let end = bucket_end(bucket(value));
                assert!(end >= value, "{value} is in a bucket that ends at {end}");
                assert!(end - value <= value / 128, "{value} is in a bucket that ends at {end}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKET_COUNT);
    }

    #[test]
    fn buckets_do_not_overlap() {
        for index in 1..bucket(u64::MAX) {
            assert_eq!(bucket(bucket_end(index)), index);
            assert_eq!(bucket(bucket_end(index - 1) + 1), index, "after {}", bucket_end(index - 1));
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::new();
        for value in (1..=100).rev() {
            histogram.record(value);
        }
        assert_eq!(histogram.percentile(0.50), 50);
        assert_eq!(histogram.percentile(0.99), 99);
        assert_eq!(histogram.percentile(0.999), 100);
        assert_eq!(histogram.percentile(0.0), 1);
        assert_eq!(histogram.percentile(1.0), 100);
        assert_eq!((histogram.count(), histogram.max()), (100, 100));
    }

    #[test]
    fn one_slow_answer_in_a_hundred_is_seen_at_p99_9_and_not_at_p99() {
        let mut histogram = Histogram::new();
        for _ in 0..99 {
            histogram.record(1_000);
        }
        histogram.record(5_000_000);
        assert!(histogram.percentile(0.99) <= 1_007);
        assert_eq!(histogram.percentile(0.999), 5_000_000, "not above what was recorded");
    }

    #[test]
    fn nothing_recorded_is_nothing() {
        assert_eq!(Histogram::new().percentile(0.99), 0);
    }

    #[test]
    fn histograms_add_up() {
        let (mut all, mut one) = (Histogram::new(), Histogram::new());
        all.record(10);
        one.record(1_000_000);
        all.add(&one);
        assert_eq!((all.count(), all.max()), (2, 1_000_000));
        assert_eq!(all.percentile(0.5), 10);
    }

    #[test]
    fn a_ratio_needs_something_to_compare_with() {
        assert_eq!(ratio(1.0, 4.0), Some(0.25));
        assert_eq!(ratio(0.0, 4.0), Some(0.0));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(1.0, f64::NAN), None);
        assert_eq!(each(10.0, 4), 2.5);
        assert_eq!(each(10.0, 0), 0.0);
    }
}
