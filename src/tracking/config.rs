//! [`TrackerConfig`]: what counts as sure, and how near is near enough.

/// The settings of a [`Tracker`](super::Tracker). Scores and overlaps (IoU) lie in `[0, 1]`.
///
/// Any number is safe, sensible or not: it decides only what is matched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackerConfig {
    /// Boxes below this score are not looked at. Detection has to run at this threshold.
    pub low_threshold: f32,
    /// Boxes of at least this score are sure: they are matched first, with lost objects too.
    pub high_threshold: f32,
    /// A sure box of at least this score that shows no known object is a new one.
    pub new_threshold: f32,
    /// How much a sure box has to overlap the place at which an object is expected.
    pub sure_overlap: f32,
    /// How much an unsure box has to. It is more: an unsure box may well show nothing at all.
    pub unsure_overlap: f32,
    /// How much the second box of a new object has to overlap its first, which tells little of its motion.
    pub new_overlap: f32,
    /// For how many frames an object that is not seen is kept.
    pub lost_frames: u32,
}

// === impl TrackerConfig ===

impl TrackerConfig {
    const LOW: f32 = 0.1;
    const HIGH: f32 = 0.6;
    const NEW: f32 = 0.7;

    /// The settings for a stream whose replies show the boxes of at least `score_threshold`.
    ///
    /// The paper's thresholds (0.1, 0.6, 0.7) are those of one network and one scorer. Here, what a reply shows is
    /// what its reader believes in, so it must be able to get an identity: `high_threshold` and
    /// `new_threshold` are at most `score_threshold`, and the paper's where that is higher (what is shown then is
    /// known before it is sure enough to be shown). `low_threshold` is the paper's 0.1, but at most half of
    /// `score_threshold`, so that there is something to match in the second round.
    pub fn for_score_threshold(score_threshold: f32) -> Self {
        Self {
            low_threshold: Self::LOW.min(score_threshold / 2.0),
            high_threshold: Self::HIGH.min(score_threshold),
            new_threshold: Self::NEW.min(score_threshold),
            ..Self::default()
        }
    }
}

impl Default for TrackerConfig {
    /// The paper's settings.
    fn default() -> Self {
        Self {
            low_threshold: Self::LOW,
            high_threshold: Self::HIGH,
            new_threshold: Self::NEW,
            sure_overlap: 0.2,
            unsure_overlap: 0.5,
            new_overlap: 0.3,
            lost_frames: 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_box_that_is_shown_is_sure_and_may_be_new() {
        for (shown, low, high, new) in [
            (0.0, 0.0, 0.0, 0.0),
            (0.1, 0.05, 0.1, 0.1),
            (0.3, 0.1, 0.3, 0.3),
            (0.65, 0.1, 0.6, 0.65),
            (0.9, 0.1, 0.6, 0.7),
        ] {
            let config = TrackerConfig::for_score_threshold(shown);
            let thresholds = (
                config.low_threshold,
                config.high_threshold,
                config.new_threshold,
            );
            assert_eq!(thresholds, (low, high, new), "{shown}");
        }
    }
}
