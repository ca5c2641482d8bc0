//! Families that are made at the moment of a scrape, beside those that a registry keeps.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// Collects families; each name may come once.
pub(super) struct Exposition {
    families: Vec<MetricFamily>,
}

impl From<Vec<MetricFamily>> for Exposition {
    fn from(families: Vec<MetricFamily>) -> Exposition {
        Exposition { families }
    }
}

/// The labels of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [(&[][..], value)]);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(&[][..], value)]);
    }

    pub(super) fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| counter(labels, value as f64)).collect();
        self.family(name, help, MetricType::COUNTER, samples);
    }

    /// A counter with a fraction, for seconds.
    pub(super) fn counter_seconds(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, MetricType::COUNTER, vec![counter(&[], value)]);
    }

    pub(super) fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| gauge(labels, value)).collect();
        self.family(name, help, MetricType::GAUGE, samples);
    }

    /// A histogram that was counted elsewhere: `counts` per bucket, one more than `bounds`; missing ones are 0.
    pub(super) fn histogram(&mut self, name: &str, help: &str, bounds: &[f64], counts: &[u64], sum: f64) {
        let mut cumulative = 0;
        let buckets = bounds.iter().enumerate().map(|(i, bound)| {
            cumulative += counts.get(i).copied().unwrap_or(0);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(sum);
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        self.family(name, help, MetricType::HISTOGRAM, vec![metric]);
    }

    pub(super) fn samples(&mut self, name: &str, help: &str, kind: MetricType, samples: Vec<Metric>) {
        self.family(name, help, kind, samples);
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, samples: Vec<Metric>) {
        if samples.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(samples);
        self.families.push(family);
    }

    pub(super) fn extend(&mut self, families: Vec<MetricFamily>) {
        self.families.extend(families);
    }

    /// In the order of names, as scrapers like it.
    pub(super) fn finish(mut self) -> Vec<MetricFamily> {
        self.families.sort_by(|a, b| a.name().cmp(b.name()));
        self.families
    }
}

pub(super) fn counter(labels: Labels<'_>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric.set_label(pairs(labels));
    metric
}

fn gauge(labels: Labels<'_>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
    metric.set_label(pairs(labels));
    metric
}

fn pairs(labels: Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}
