//! `detectd detect --stream`: photos as the frames of one stream.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Detect, Exit, refusal, terminal};
use crate::grpc::pb;
use crate::grpc::pb::detect_stream_request::Payload as Sent;
use crate::grpc::pb::detect_stream_response::Payload as Told;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;
use crate::grpc::pb::frame_result::Outcome;

/// Frames that are read from disk before the server takes them: one while another is sent.
const READ_AHEAD: usize = 2;

/// How often a stream is opened anew after a server went away, without an answer in between.
const MAX_TRIES: usize = 5;

/// Between two tries: a server that restarts needs a moment.
const PAUSE: Duration = Duration::from_secs(1);

/// What is looked for in folders.
const EXTENSIONS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "bmp"];

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
    #[arg(long, value_name = "DURATION", value_parser = humantime_serde::re::humantime::parse_duration, requires = "stream")]
    max_frame_age: Option<Duration>,
    /// Send so many frames a second, as a camera would; as fast as they are taken when unset.
    #[arg(long, value_name = "FRAMES", requires = "stream")]
    fps: Option<f64>,
    /// Follow objects from frame to frame.
    #[arg(long, requires = "stream")]
    track: bool,
}

/// See [`pb::FramePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    All,
    Latest,
}

/// What has become of the frames so far.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    dropped: BTreeMap<&'static str, usize>,
    failed: usize,
}

/// How one stream ended.
enum End {
    /// Everything is answered.
    Done,
    /// The server goes away: go on with this frame.
    GoOn(usize),
}

// === impl Detect ===

impl Detect {
    /// Streams the photos, over several streams if servers go away.
    pub(super) async fn stream_all(
        &self,
        mut client: DetectionServiceClient<Channel>,
        timeout: Duration,
    ) -> anyhow::Result<Exit> {
        let photos = frames(&self.photos)?;
        let interval = match self.stream.fps {
            None => Duration::ZERO,
            Some(fps) => Duration::try_from_secs_f64(1.0 / fps).context("--fps")?,
        };
        let (mut tally, began) = (Tally::default(), Instant::now());
        let (mut next, mut tries) = (0, 0);
        while next < photos.len() {
            let mut answered = 0;
            let stream = self.stream_once(
                &mut client,
                &photos,
                next,
                interval,
                timeout,
                &mut tally,
                &mut answered,
            );
            match stream.await? {
                End::Done => break,
                End::GoOn(at) => {
                    tries = if answered > 0 { 0 } else { tries + 1 };
                    if tries > MAX_TRIES {
                        bail!("the server goes away again and again");
                    }
                    next = at;
                    terminal::complain(&format!("the server goes away; going on with frame {at}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        terminal::say_unless(self.json, &tally.line(began.elapsed()));
        Ok(match tally.failed {
            0 => Exit::Success,
            _ => Exit::Failure,
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a step of the loop above, and of no other"
    )]
    async fn stream_once(
        &self,
        client: &mut DetectionServiceClient<Channel>,
        photos: &[PathBuf],
        first: usize,
        interval: Duration,
        timeout: Duration,
        tally: &mut Tally,
        answered: &mut usize,
    ) -> anyhow::Result<End> {
        let (sender, messages) = mpsc::channel(READ_AHEAD);
        let config = self.config()?;
        let feed = feed(sender, config, photos.to_vec(), first, interval);
        // Ends when the stream does: nobody takes its messages then.
        let feeding = tokio::spawn(feed);
        let mut answers = match client.detect_stream(ReceiverStream::new(messages)).await {
            Ok(answers) => answers.into_inner(),
            Err(status) if is_away(&status) => return Ok(End::GoOn(first)),
            Err(status) => bail!(refusal(&status)),
        };
        let mut next = first;
        let mut draining = false;
        loop {
            let message = match tokio::time::timeout(timeout, answers.message()).await {
                Err(_) => bail!("no answer within {} s", timeout.as_secs_f64()),
                Ok(Err(status)) if is_away(&status) => return Ok(End::GoOn(next)),
                Ok(Err(status)) => bail!(refusal(&status)),
                Ok(Ok(None)) if draining => return Ok(End::GoOn(next)),
                Ok(Ok(None)) => break,
                Ok(Ok(Some(message))) => message,
            };
            match message.payload {
                Some(Told::Result(result)) => {
                    *answered += 1;
                    let at = usize::try_from(result.frame_id).unwrap_or(usize::MAX);
                    next = at.saturating_add(1);
                    let photo = photos
                        .get(at)
                        .context("an answer to a frame that was not sent")?;
                    self.take(photo, result, tally)?;
                }
                Some(Told::Draining(_)) => draining = true,
                Some(Told::Started(_) | Told::Heartbeat(_)) | None => {}
            }
        }
        tally.failed += feeding.await.context("the sender broke")?;
        Ok(End::Done)
    }

    fn config(&self) -> anyhow::Result<pb::StreamConfig> {
        let age = self.stream.max_frame_age;
        let age = age.map(prost_types::Duration::try_from).transpose();
        let mut config = pb::StreamConfig {
            model: self.model.clone(),
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

    fn take(&self, photo: &Path, result: pb::FrameResult, tally: &mut Tally) -> anyhow::Result<()> {
        match result.outcome {
            Some(Outcome::Detections(response)) => {
                tally.answered += 1;
                let encoded = match &self.out {
                    Some(_) => std::fs::read(photo).context("cannot read it again")?,
                    None => Vec::new(),
                };
                self.show(photo, &encoded, &response)?;
            }
            Some(Outcome::Dropped(dropped)) => {
                let reason = match dropped.reason() {
                    pb::DropReason::Superseded => "superseded",
                    pb::DropReason::TooOld => "too old",
                    pb::DropReason::Overloaded => "overloaded",
                    pb::DropReason::Unspecified => "for no reason",
                };
                *tally.dropped.entry(reason).or_default() += 1;
                terminal::say_unless(
                    self.json,
                    &format!("{}  dropped: {reason}", photo.display()),
                );
            }
            Some(Outcome::Error(error)) => {
                tally.failed += 1;
                let code = Code::from(error.code);
                terminal::complain(&format!("{}: {code:?}: {}", photo.display(), error.message));
            }
            None => bail!("{}: an answer that says nothing", photo.display()),
        }
        Ok(())
    }
}

/// Whether another server, or the same one later, may take what this one did not.
fn is_away(status: &Status) -> bool {
    status.code() == Code::Unavailable
}

/// Sends the config and the frames from `first` on. Answers how many could not be read.
async fn feed(
    sender: mpsc::Sender<pb::DetectStreamRequest>,
    config: pb::StreamConfig,
    photos: Vec<PathBuf>,
    first: usize,
    interval: Duration,
) -> usize {
    let message = |payload| pb::DetectStreamRequest {
        payload: Some(payload),
    };
    if sender.send(message(Sent::Config(config))).await.is_err() {
        return 0;
    }
    let began = tokio::time::Instant::now();
    let mut failed = 0;
    for (count, (id, photo)) in (0u32..).zip((0u64..).zip(&photos).skip(first)) {
        tokio::time::sleep_until(began + interval * count).await;
        let encoded = match std::fs::read(photo) {
            Ok(encoded) => encoded,
            Err(error) => {
                failed += 1;
                terminal::complain(&format!("{}: cannot read it: {error}", photo.display()));
                continue;
            }
        };
        let frame = pb::Frame {
            frame_id: id,
            image: Some(pb::Image {
                source: Some(pb::image::Source::Encoded(encoded.into())),
            }),
            ..Default::default()
        };
        if sender.send(message(Sent::Frame(frame))).await.is_err() {
            break; // the stream has ended
        }
    }
    failed
}

/// The files, and what is in the folders in the order of their names, numbers by what they are.
fn frames(given: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut frames = Vec::new();
    for path in given {
        if !path.is_dir() {
            frames.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut photos: Vec<PathBuf> = entries
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| is_photo(path))
            .collect();
        if photos.is_empty() {
            bail!("there is no photo in {}", path.display());
        }
        photos.sort_by(|a, b| by_number(&a.to_string_lossy(), &b.to_string_lossy()));
        frames.append(&mut photos);
    }
    Ok(frames)
}

fn is_photo(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    EXTENSIONS.contains(&extension.to_lowercase().as_str())
}

/// frame-2 before frame-10.
fn by_number(a: &str, b: &str) -> Ordering {
    let key = |text: &str| {
        let mut parts: Vec<(u64, String)> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            let end = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (digits, tail) = tail.split_at(end);
            parts.push((0, word.to_owned()));
            parts.push((digits.parse().unwrap_or(u64::MAX), digits.to_owned()));
            rest = tail;
        }
        parts
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

// === impl Tally ===

impl Tally {
    fn line(&self, took: Duration) -> String {
        let dropped: usize = self.dropped.values().sum();
        let frames = self.answered + dropped + self.failed;
        let rate = frames as f64 / took.as_secs_f64();
        let mut line = format!("{frames} frames  {} answered", self.answered);
        for (reason, count) in &self.dropped {
            line.push_str(&format!("  {count} {reason}"));
        }
        if self.failed > 0 {
            line.push_str(&format!("  {} failed", self.failed));
        }
        line.push_str(&format!("  {rate:.1} frames/s"));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_folder_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["f10.jpg", "f9.JPG", "f1.png", "notes.txt", "f010.jpg"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let found = frames(&[folder.path().to_owned(), PathBuf::from("last.txt")]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["f1.png", "f9.JPG", "f010.jpg", "f10.jpg", "last.txt"]
        );
        let empty = tempfile::tempdir().unwrap();
        assert!(frames(&[empty.path().to_owned()]).is_err());
    }
}
