//! One stream of a run: frames go out and answers come in until all are answered or the stream breaks off.

use std::future::pending;

use anyhow::{Context, bail};
use tokio::sync::mpsc::{self, Permit, error::SendError};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::{Refusal, Run};
use crate::grpc::pb;
use crate::grpc::pb::detect_stream_request::Payload as Sent;
use crate::grpc::pb::detect_stream_response::Payload as Told;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;

/// Frames that are read from disk before the server takes them: one while another is sent.
const READ_AHEAD: usize = 2;

/// A message is its picture and no more than so many bytes around it.
const MESSAGE_HEADER: u64 = 64;

type Sender = mpsc::Sender<pb::DetectStreamRequest>;

/// How a stream ended.
pub(super) enum End {
    /// Every frame is done with.
    Done,
    /// For this reason, with frames left that another stream may take.
    BrokeOff(String),
}

// === impl Run ===

impl Run<'_> {
    /// Goes through the frames that are left. What it cannot go on from is an error.
    pub(super) async fn stream_once(
        &mut self,
        client: &mut DetectionServiceClient<Channel>,
    ) -> anyhow::Result<End> {
        let (sender, messages) = mpsc::channel(READ_AHEAD);
        let config = message(Sent::Config(self.config.clone()));
        sender.try_send(config).context("a stream of no room")?;
        let opening = client.detect_stream(ReceiverStream::new(messages));
        let mut answers = match tokio::time::timeout(self.timeout, opening).await {
            Err(_) => bail!(self.silence()),
            Ok(Err(status)) => return self.broken(&status),
            Ok(Ok(answers)) => answers.into_inner(),
        };
        let mut sender = Some(sender);
        let (mut started, mut draining, mut ended) = (false, false, false);
        // When the next frame may be sent, and since when something is waited for.
        let (mut due, mut since) = (Instant::now(), Instant::now());
        loop {
            if self.frames.all_sent() || draining || ended {
                sender = None;
            }
            // Between the frames of a slow camera there is nothing to wait for.
            let owed = !started || sender.is_none() || self.frames.any_waits();
            let patience = self.timeout.saturating_sub(since.elapsed());
            tokio::select! {
                // An answer that is there is never too late.
                biased;
                told = answers.message() => {
                    match told {
                        Err(status) => return self.broken(&status),
                        Ok(None) if self.frames.left() == 0 => return Ok(End::Done),
                        Ok(None) if draining => return Ok(End::BrokeOff("the server goes away".to_owned())),
                        Ok(None) => return Ok(End::BrokeOff("the stream ended early".to_owned())),
                        Ok(Some(told)) => match told.payload {
                            Some(Told::Result(result)) => self.answer(result)?,
                            Some(Told::Started(_)) => started = true,
                            // What is sent from now on is not looked at.
                            Some(Told::Draining(_)) => draining = true,
                            Some(Told::Heartbeat(_)) | None => {}
                        },
                    }
                    // Drawing takes its time, and is not the server's.
                    since = Instant::now();
                }
                place = place(sender.as_ref(), due) => {
                    due += self.interval;
                    if started && !self.frames.any_waits() {
                        since = Instant::now();
                    }
                    match place {
                        Ok(place) => self.send_next(place),
                        // The stream has ended, and its answers say why.
                        Err(SendError(())) => ended = true,
                    }
                }
                () = sleep(patience), if owed => match self.frames.left() {
                    0 => return Ok(End::Done),
                    _ => bail!(self.silence()),
                },
            }
        }
    }

    fn send_next(&mut self, place: Permit<'_, pb::DetectStreamRequest>) {
        let Some((id, file)) = self.frames.next() else {
            return;
        };
        match std::fs::read(file) {
            Err(error) => {
                let file = file.to_owned();
                self.unread(id, &file, &error);
            }
            Ok(encoded) => {
                place.send(message(Sent::Frame(pb::Frame {
                    frame_id: id,
                    image: Some(pb::Image {
                        source: Some(pb::image::Source::Encoded(encoded.into())),
                    }),
                    ..Default::default()
                })));
                self.frames.sent(id);
            }
        }
    }

    fn broken(&mut self, status: &Status) -> anyhow::Result<End> {
        let refusal = Refusal::from(status);
        if let Some(limit) = refusal.message_limit() {
            // The server cannot say which it was: it has not read it.
            let too_large = self
                .frames
                .take_larger(limit.saturating_sub(MESSAGE_HEADER));
            if !too_large.is_empty() {
                for (id, file) in &too_large {
                    self.failed(*id, file, &refusal.to_string(), &refusal.as_json());
                }
                return Ok(End::BrokeOff(refusal.to_string()));
            }
        }
        match refusal.may_pass() {
            true if self.frames.left() == 0 => Ok(End::Done),
            true => Ok(End::BrokeOff(refusal.to_string())),
            false => bail!(refusal.to_string()),
        }
    }

    fn silence(&self) -> String {
        format!("no answer within {} s", self.timeout.as_secs_f64())
    }
}

fn message(payload: Sent) -> pb::DetectStreamRequest {
    pb::DetectStreamRequest {
        payload: Some(payload),
    }
}

/// A place for a message, once it is due. There is never one when nothing more is sent.
async fn place(
    sender: Option<&Sender>,
    due: Instant,
) -> Result<Permit<'_, pb::DetectStreamRequest>, SendError<()>> {
    match sender {
        None => pending().await,
        Some(sender) => {
            sleep_until(due).await;
            sender.reserve().await
        }
    }
}
