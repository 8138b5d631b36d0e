//! [`Estimate`]: what a thing usually takes, learned from what it took, and how far it strays.

/// Samples after which an estimate is more than a guess.
const KNOWN: u32 = 8;

/// Share of a new sample in the mean. An eighth is what TCP takes for its round trips (RFC 6298): a change shows
/// after some ten samples, a single odd one does not.
const GAIN: f64 = 1.0 / 8.0;

/// Deviations from the mean beyond which a sample counts no more than this: a page fault or a stolen core is
/// not what the next run takes. A lasting change widens the deviation and is followed within some twenty samples.
const OUTLIER: f64 = 4.0;

/// Deviations that an upper or lower bound lies from the mean. A mean deviation is 0.8 of a standard deviation
/// where samples are normal, so three leave out one in a hundred.
const BOUND: f64 = 3.0;

/// A running mean and mean deviation of a positive quantity, in whatever unit it is fed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    mean: f64,
    deviation: f64,
    samples: u32,
}

// === impl Estimate ===

impl Estimate {
    /// Nothing is known.
    pub const UNKNOWN: Estimate = Estimate {
        mean: 0.0,
        deviation: 0.0,
        samples: 0,
    };

    /// Known from elsewhere, by measurement.
    pub fn measured(mean: f64) -> Self {
        Self {
            mean,
            deviation: 0.0,
            samples: KNOWN,
        }
    }

    /// Takes in a sample; one that is not finite is passed over.
    pub fn observe(&mut self, sample: f64) {
        if !sample.is_finite() {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.mean = sample;
            self.deviation = sample.abs() / 2.0;
            return;
        }
        let mut off = sample - self.mean;
        if self.is_known() {
            // A tenth of the mean, so that a quantity that never varied can begin to.
            let most = OUTLIER * self.deviation.max(self.mean.abs() / 10.0);
            off = off.clamp(-most, most);
        }
        self.mean += GAIN * off;
        self.deviation += GAIN * (off.abs() - self.deviation);
    }

    /// Whether decisions may rest on it.
    pub fn is_known(&self) -> bool {
        self.samples >= KNOWN
    }

    /// What it usually is; zero while nothing is known.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// What it is at most, but for one time in a hundred or so.
    pub fn upper(&self) -> f64 {
        self.mean + BOUND * self.deviation
    }

    /// What it is at least, likewise.
    pub fn lower(&self) -> f64 {
        self.mean - BOUND * self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: impl IntoIterator<Item = f64>) -> Estimate {
        let mut estimate = Estimate::UNKNOWN;
        samples
            .into_iter()
            .for_each(|sample| estimate.observe(sample));
        estimate
    }

    #[test]
    fn it_is_a_guess_until_there_are_some_samples() {
        assert!(!after([5.0; 7]).is_known());
        assert!(after([5.0; 8]).is_known());
        assert!(Estimate::measured(3.0).is_known());
        assert_eq!(after([f64::NAN; 20]), Estimate::UNKNOWN);
    }

    #[test]
    fn a_single_outlier_hardly_moves_it() {
        let steady = (0..100).map(|i| 10.0 + f64::from(i % 3));
        let mut estimate = after(steady);
        let before = estimate.mean();
        estimate.observe(10_000.0);
        assert!(estimate.mean() < before * 1.1, "{estimate:?}");
    }

    #[test]
    fn a_lasting_change_is_followed() {
        let mut estimate = after([10.0; 50]);
        (0..30).for_each(|_| estimate.observe(40.0));
        assert!((35.0..45.0).contains(&estimate.mean()), "{estimate:?}");
        (0..60).for_each(|_| estimate.observe(5.0));
        assert!((4.0..7.0).contains(&estimate.mean()), "{estimate:?}");
    }

    #[test]
    fn its_bounds_hold_nearly_all_samples() {
        // A fixed sequence without a pattern, roughly normal: the sum of four uniform numbers.
        let mut state = 7u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let samples: Vec<f64> = (0..4_000)
            .map(|_| 10.0 + uniform() + uniform() + uniform() + uniform())
            .collect();
        let (mut estimate, mut outside) = (Estimate::UNKNOWN, 0);
        for sample in samples {
            if estimate.samples > 100 && !(estimate.lower()..=estimate.upper()).contains(&sample) {
                outside += 1;
            }
            estimate.observe(sample);
        }
        assert!(outside < 120, "{outside} of 3900");
    }
}
