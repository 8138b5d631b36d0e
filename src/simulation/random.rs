//! [`Random`]: numbers from a seed, by an algorithm that does not change under a new version of a crate.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// A sequence of numbers. PCG XSL RR 128/64 (O'Neill, 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(Pcg64);

// === impl Random ===

impl Random {
    /// The sequence `stream` of `seed`: another source's numbers do not change when one is added or taken away.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(Pcg64::new(u128::from(seed), u128::from(stream)));
        // The first number is close to the seed itself.
        random.uniform();
        random
    }

    /// From 0 up to, but without, 1.
    pub(super) fn uniform(&mut self) -> f64 {
        const BITS: u32 = 53;
        (self.0.next_u64() >> (64 - BITS)) as f64 / (1u64 << BITS) as f64
    }

    /// With mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// With mean 0 and deviation 1 (Box and Muller; the second number is thrown away).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Around 1, never negative, with a relative spread of about `spread`.
    pub(super) fn jitter(&mut self, spread: f64) -> f64 {
        match spread > 0.0 {
            true => (spread * self.normal() - spread * spread / 2.0).exp(),
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(mut draw: impl FnMut(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(7, 0);
        (0..50_000).map(|_| draw(&mut random)).sum::<f64>() / 50_000.0
    }

    #[test]
    fn numbers_have_the_means_they_are_named_for() {
        assert!((mean(Random::uniform) - 0.5).abs() < 0.01);
        assert!((mean(Random::exponential) - 1.0).abs() < 0.02);
        assert!(mean(Random::normal).abs() < 0.02);
        assert!((mean(|random| random.jitter(0.3)) - 1.0).abs() < 0.01);
    }

    #[test]
    fn streams_of_a_seed_and_seeds_differ() {
        let first = |seed, stream| Random::new(seed, stream).uniform().to_bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }
}
