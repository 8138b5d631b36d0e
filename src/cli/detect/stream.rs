//! `detectd detect --stream`: photos as the frames of one stream, or of several if one breaks off.

mod call;
mod folder;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use humantime_serde::re::humantime::parse_duration;
use serde_json::json;
use tonic::transport::Channel;

use super::print::frame_json;
use super::{Detect, Exit, Refusal, terminal};
use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;
use crate::grpc::pb::frame_result::Outcome;
use call::End;
use folder::frames;
use tally::{Frames, Tally};

/// Between two tries to open a stream: a server that restarts needs a moment.
const PAUSE: Duration = Duration::from_millis(500);

/// Fewer frames than one in so long are a slip.
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How photos are streamed.
#[derive(Debug, Args)]
pub(super) struct StreamFlags {
    /// Send the photos as the frames of one stream.
    #[arg(long)]
    pub(super) stream: bool,
    /// What becomes of frames that wait: all are looked at, or the latest replaces the one before.
    #[arg(long, value_enum, default_value_t = Policy::All, requires = "stream")]
    policy: Policy,
    /// Frames in hand at a time; the server's default when unset.
    #[arg(long, value_name = "FRAMES", default_value_t = 0, requires = "stream")]
    max_in_flight: u32,
    /// Drop frames that have waited for longer, like 200ms.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "stream")]
    max_frame_age: Option<Duration>,
    /// Send so many frames a second, as a camera would; as fast as they are taken when unset.
    #[arg(long, value_name = "FRAMES", requires = "stream")]
    fps: Option<f64>,
    /// Follow objects from frame to frame.
    #[arg(long, requires = "stream")]
    track: bool,
    /// When the stream breaks off, go on with the first frame that has no answer: open another, again and again for so
    /// long without an answer, then give up. 0s gives up at once.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s", requires = "stream")]
    retry_for: Duration,
}

/// See [`pb::FramePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    All,
    Latest,
}

/// Photos on their way through streams.
struct Run<'a> {
    detect: &'a Detect,
    config: pb::StreamConfig,
    timeout: Duration,
    interval: Duration,
    frames: Frames,
    tally: Tally,
    /// Answers of every kind.
    answers: usize,
}

// === impl Detect ===

impl Detect {
    pub(super) async fn stream_all(
        &self,
        client: DetectionServiceClient<Channel>,
        timeout: Duration,
    ) -> anyhow::Result<Exit> {
        let mut run = Run {
            detect: self,
            config: self.config()?,
            timeout,
            interval: self.stream.fps.map_or(Ok(Duration::ZERO), interval)?,
            frames: Frames::new(frames(&self.photos)?),
            tally: Tally::default(),
            answers: 0,
        };
        let began = Instant::now();
        let outcome = run.go_through(client).await;
        let line = run.tally.line(run.frames.left(), began.elapsed());
        terminal::say_unless(self.json, &line);
        outcome?;
        Ok(match run.tally.failed {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }

    fn config(&self) -> anyhow::Result<pb::StreamConfig> {
        let age = self.stream.max_frame_age;
        let age = age.map(prost_types::Duration::try_from).transpose();
        let mut config = pb::StreamConfig {
            model: self.client.model.clone(),
            options: Some(self.options()),
            max_in_flight: self.stream.max_in_flight,
            max_frame_age: age.context("--max-frame-age")?,
            track: self.stream.track,
            ..Default::default()
        };
        config.set_frame_policy(match self.stream.policy {
            Policy::All => pb::FramePolicy::All,
            Policy::Latest => pb::FramePolicy::Latest,
        });
        Ok(config)
    }
}

// === impl Run ===

impl Run<'_> {
    /// Opens stream after stream until every frame is done with.
    async fn go_through(
        &mut self,
        mut client: DetectionServiceClient<Channel>,
    ) -> anyhow::Result<()> {
        let mut lost = None;
        loop {
            let before = self.answers;
            let End::BrokeOff(cause) = self.stream_once(&mut client).await? else {
                return Ok(());
            };
            self.frames.take_back();
            if self.answers > before {
                lost = None;
            }
            let first = lost.is_none();
            let retry_for = self.detect.stream.retry_for;
            if lost.get_or_insert_with(Instant::now).elapsed() >= retry_for {
                bail!("no answer for {} s: {cause}", retry_for.as_secs_f64());
            }
            if first {
                // Without a pause: another server may be there already.
                let next = self.frames.first().unwrap_or(Path::new("")).display();
                terminal::complain(&format!("{cause}; going on with {next}"));
            } else {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn answer(&mut self, result: pb::FrameResult) -> anyhow::Result<()> {
        let (id, json) = (result.frame_id, self.detect.json);
        let file = self.frames.answered(id);
        let file = file.with_context(|| format!("an answer to frame {id}, out of turn"))?;
        self.answers += 1;
        match result.outcome {
            Some(Outcome::Detections(response)) => {
                self.tally.answered += 1;
                let encoded = match &self.detect.out {
                    Some(_) => std::fs::read(file).context("cannot read it again")?,
                    None => Vec::new(),
                };
                self.detect.show(file, Some(id), &encoded, &response)?;
            }
            Some(Outcome::Dropped(dropped)) => {
                let (reason, text) = match dropped.reason() {
                    pb::DropReason::Superseded => ("SUPERSEDED", "superseded"),
                    pb::DropReason::TooOld => ("TOO_OLD", "too old"),
                    pb::DropReason::Overloaded => ("OVERLOADED", "overloaded"),
                    pb::DropReason::Unspecified => ("UNSPECIFIED", "for no reason"),
                };
                *self.tally.dropped.entry(text).or_default() += 1;
                terminal::say(&match json {
                    true => frame_json(id, file, "dropped", &json!(reason)),
                    false => format!("{}  dropped: {text}", file.display()),
                });
            }
            Some(Outcome::Error(error)) => {
                let (file, refusal) = (file.to_owned(), Refusal::from(&error));
                self.failed(id, &file, &refusal.to_string(), &refusal.as_json());
            }
            None => bail!("{}: an answer that says nothing", file.display()),
        }
        Ok(())
    }

    /// A file that is no frame of any stream.
    fn unread(&mut self, id: u64, file: &Path, error: &std::io::Error) {
        let text = format!("cannot read it: {error}");
        let error = json!({"code": null, "reason": null, "message": &text});
        self.failed(id, file, &text, &error);
    }

    fn failed(&mut self, id: u64, file: &Path, text: &str, error: &serde_json::Value) {
        self.tally.failed += 1;
        if self.detect.json {
            terminal::say(&frame_json(id, file, "error", error));
        }
        terminal::complain(&format!("{}: {text}", file.display()));
    }
}

fn interval(fps: f64) -> anyhow::Result<Duration> {
    let interval = Duration::try_from_secs_f64(1.0 / fps).context("--fps")?;
    match interval > LONGEST_INTERVAL {
        true => bail!("--fps {fps} is less than a frame a day"),
        false => Ok(interval),
    }
}
