//! What streams say, from and to the project's types.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::{effective_options, image, known, model_name, model_ref, options, saturating, version};
use crate::grpc::pb;
use crate::pipeline::{
    DetectError, DetectOptions, DropReason, FramePolicy, Image, StreamRequest, StreamTerms,
};

/// What a stream is to be like: for the use case, and for the door.
#[derive(Debug)]
pub(in crate::grpc) struct Terms {
    pub(in crate::grpc) request: StreamRequest,
    /// A sign of life when nothing was sent for so long.
    pub(in crate::grpc) heartbeat: Option<Duration>,
}

/// A heartbeat more often than that would be traffic, not a sign of life.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);

/// Checks a stream's first message and takes it over.
pub(in crate::grpc) fn stream_request(config: pb::StreamConfig) -> Result<Terms, DetectError> {
    let policy = match known("frame_policy", config.frame_policy)? {
        pb::FramePolicy::Unspecified | pb::FramePolicy::All => FramePolicy::All,
        pb::FramePolicy::Latest => FramePolicy::Latest,
    };
    let max_in_flight = usize::try_from(config.max_in_flight).unwrap_or(usize::MAX);
    Ok(Terms {
        request: StreamRequest {
            model: model_name(config.model),
            version: version(&config.model_version)?,
            options: wishes(config.options)?,
            policy,
            max_in_flight: NonZeroUsize::new(max_in_flight),
            track: config.track,
            max_frame_age: positive("max_frame_age", config.max_frame_age, Duration::ZERO)?,
        },
        heartbeat: positive("heartbeat", config.heartbeat, SHORTEST_HEARTBEAT)?,
    })
}

/// Checks a frame and takes it over. What is wrong with it is the frame's alone.
pub(in crate::grpc) fn frame(
    picture: Option<pb::Image>,
    wanted: Option<pb::DetectOptions>,
) -> Result<(Image, DetectOptions), DetectError> {
    Ok((image(picture)?, wishes(wanted)?))
}

fn wishes(wanted: Option<pb::DetectOptions>) -> Result<DetectOptions, DetectError> {
    wanted.map_or_else(|| Ok(DetectOptions::default()), options)
}

/// A duration above zero, and not below `least`.
fn positive(
    field: &'static str,
    value: Option<prost_types::Duration>,
    least: Duration,
) -> Result<Option<Duration>, DetectError> {
    let Some(value) = value else {
        return Ok(None);
    };
    let invalid = |detail| DetectError::InvalidOption { field, detail };
    let (seconds, nanos) = (value.seconds, value.nanos);
    // The message's own conversion panics at the ends of its range.
    let whole = u64::try_from(seconds).ok();
    let rest = u32::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    let duration = whole
        .zip(rest)
        .map(|(whole, rest)| Duration::new(whole, rest));
    match duration.filter(|duration| !duration.is_zero()) {
        Some(duration) if duration >= least => Ok(Some(duration)),
        Some(_) => Err(invalid(format!("below {} ms", least.as_millis()))),
        None => Err(invalid(format!(
            "{seconds} s and {nanos} ns are not a duration above 0"
        ))),
    }
}

/// What is in force.
pub(in crate::grpc) fn started(terms: &StreamTerms) -> pb::StreamStarted {
    let policy = match terms.policy {
        FramePolicy::All => pb::FramePolicy::All,
        FramePolicy::Latest => pb::FramePolicy::Latest,
    };
    pb::StreamStarted {
        model: Some(model_ref(&terms.model)),
        max_in_flight: saturating(terms.max_in_flight.get()),
        frame_policy: policy.into(),
        effective_options: Some(effective_options(&terms.options)),
    }
}

pub(in crate::grpc) fn drop_reason(reason: DropReason) -> pb::DropReason {
    match reason {
        DropReason::Superseded => pb::DropReason::Superseded,
        DropReason::TooOld => pb::DropReason::TooOld,
        DropReason::Overloaded => pb::DropReason::Overloaded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duration(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos })
    }

    #[test]
    fn durations_are_above_zero_and_heartbeats_no_flood() {
        let config = |heartbeat, max_frame_age| {
            stream_request(pb::StreamConfig {
                heartbeat,
                max_frame_age,
                ..Default::default()
            })
        };
        let terms = config(duration(5, 0), duration(0, 200_000_000)).unwrap();
        assert_eq!(terms.heartbeat, Some(Duration::from_secs(5)));
        let age = Duration::from_millis(200);
        assert_eq!(terms.request.max_frame_age, Some(age));
        for (heartbeat, age, field) in [
            (duration(0, 1_000_000), None, "heartbeat"),
            (duration(-1, 0), None, "heartbeat"),
            (None, duration(0, 0), "max_frame_age"),
            (None, duration(0, -5), "max_frame_age"),
            (None, duration(i64::MIN, i32::MIN), "max_frame_age"),
        ] {
            let error = config(heartbeat, age).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn a_policy_that_there_is_not_is_told() {
        let config = pb::StreamConfig {
            frame_policy: 7,
            ..Default::default()
        };
        let error = stream_request(config).unwrap_err().to_string();
        assert!(error.starts_with("frame_policy: 7"), "{error}");
    }
}
