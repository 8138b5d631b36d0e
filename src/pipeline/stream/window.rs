//! [`FrameStream`]: the frames of one stream that were taken in and are not answered yet.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::identities::Identities;
use super::{
    DropReason, FrameAnswer, FrameOutcome, FramePolicy, FrameRequest, OpenStream, StreamRequest,
};
use crate::pipeline::claim::Claim;
use crate::pipeline::detector::{Detect, Detector, Pending, Turn};
use crate::pipeline::error::DetectError;
use crate::pipeline::request::DetectRequest;
use crate::pipeline::timings::Received;
use crate::scheduling::{Deadline, Kind};

/// Replaced frames that may wait for their turn to be answered: some seconds of a fast camera while one of its
/// frames runs. Each takes some hundred bytes.
const MAX_REPLACED: usize = 256;

/// The frames of a stream. `T` is what the caller wants back with each answer.
#[derive(Debug)]
pub struct FrameStream<T> {
    detector: Detector,
    request: StreamRequest,
    stream: OpenStream,
    window: usize,
    /// Where objects are followed.
    identities: Option<Identities>,
    /// Frames that have been answered: the number of the first that is not.
    answered: u64,
    /// In the order in which they came.
    frames: VecDeque<Frame<T>>,
}

#[derive(Debug)]
struct Frame<T> {
    tag: T,
    received: Received,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The window is full, and it is the newest.
    Held(Box<FrameRequest>),
    /// It waits in the line, or is past it.
    InLine(Pending, Claim),
    /// Its answer is known.
    Done(FrameOutcome),
}

// === impl FrameStream ===

impl<T> FrameStream<T> {
    pub(super) fn new(
        detector: Detector,
        request: StreamRequest,
        stream: OpenStream,
        window: usize,
        identities: Option<Identities>,
    ) -> Self {
        Self {
            detector,
            request,
            stream,
            window,
            identities,
            answered: 0,
            frames: VecDeque::new(),
        }
    }

    /// Whether another frame may be taken in now. After an answer there is room again.
    pub fn has_room(&self) -> bool {
        let most = match self.request.policy {
            FramePolicy::All => self.window,
            FramePolicy::Latest => self.window + 1 + MAX_REPLACED,
        };
        self.frames.len() < most
    }

    /// Whether every frame is answered.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes in a frame that was just received, or what is wrong with it: it will be answered in its turn either way.
    pub fn push(&mut self, tag: T, frame: Result<FrameRequest, DetectError>) {
        self.detector.metrics.frames_accepted.inc();
        // What cannot be looked at takes nobody's place.
        if self.request.policy == FramePolicy::Latest && frame.is_ok() {
            self.replace();
        }
        let received = Received::now();
        let state = match frame {
            Err(error) => State::Done(FrameOutcome::Failed(error)),
            Ok(frame) if self.in_line() < self.window => self.submit(frame, received),
            Ok(frame) => State::Held(Box::new(frame)),
        };
        self.frames.push_back(Frame {
            tag,
            received,
            state,
        });
    }

    /// The next answer, in the order of the frames. Pending while the first frame is not done, and when there is
    /// none. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> FrameAnswer<T> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<FrameAnswer<T>> {
        self.fill_window();
        if let Some(first) = self.frames.front_mut()
            && let State::InLine(pending, _) = &mut first.state
        {
            let mut answer = std::task::ready!(Pin::new(&mut *pending).poll(context));
            if let Ok(found) = &mut answer {
                if let (Some(identities), Some(asked)) =
                    (&mut self.identities, pending.take_asked())
                {
                    identities.name(self.answered, found, asked);
                }
                found.timings.in_order(first.received);
            }
            first.state = State::Done(answer.into());
        }
        match self.frames.pop_front() {
            Some(Frame {
                tag,
                state: State::Done(outcome),
                ..
            }) => {
                self.detector.metrics.frame(outcome.label());
                self.answered += 1;
                self.fill_window();
                Poll::Ready(FrameAnswer { tag, outcome })
            }
            Some(other) => {
                // One that is held is never first: the window before it is not empty.
                debug_assert!(false, "the first frame is in the line or done");
                self.frames.push_front(other);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }

    /// Frames that are in the line or past it, and not answered.
    fn in_line(&self) -> usize {
        let in_line = |frame: &&Frame<T>| matches!(frame.state, State::InLine(..));
        self.frames.iter().filter(in_line).count()
    }

    /// Takes back the frame that waits, if one does: something newer has come.
    fn replace(&mut self) {
        let done = |frame: &Frame<T>| matches!(frame.state, State::Done(_));
        let Some(last) = self.frames.iter_mut().rev().find(|frame| !done(frame)) else {
            return;
        };
        let waits = match &last.state {
            State::Held(_) => true,
            State::InLine(_, claim) => claim.take(),
            State::Done(_) => false,
        };
        if waits {
            // What it was leaves the line with this.
            last.state = State::Done(FrameOutcome::Dropped(DropReason::Superseded));
        }
    }

    /// Puts the frame that is held into the line when there is room in the window.
    fn fill_window(&mut self) {
        let is_held = |frame: &Frame<T>| matches!(frame.state, State::Held(_));
        let Some(at) = self.frames.iter().rposition(is_held) else {
            return;
        };
        if self.in_line() >= self.window {
            return;
        }
        let Some(frame) = self.frames.get_mut(at) else {
            return;
        };
        let superseded = State::Done(FrameOutcome::Dropped(DropReason::Superseded));
        let (received, state) = (
            frame.received,
            std::mem::replace(&mut frame.state, superseded),
        );
        if let State::Held(held) = state {
            let state = self.submit(*held, received);
            if let Some(frame) = self.frames.get_mut(at) {
                frame.state = state;
            }
        }
    }

    fn detect(&self) -> Detect {
        let down_to = self.identities.as_ref().and_then(Identities::threshold);
        down_to.map_or(Detect::AsAsked, Detect::DownTo)
    }

    fn submit(&self, frame: FrameRequest, received: Received) -> State {
        let FrameRequest {
            image,
            options,
            permit,
        } = frame;
        let deadline = match self.request.max_frame_age {
            None => Deadline::NEVER,
            Some(age) => received.after(age).map_or(Deadline::NEVER, Deadline::at),
        };
        let span = tracing::info_span!("frame", model = tracing::field::Empty, bytes = image.len());
        let request = DetectRequest {
            model: self.request.model.clone(),
            version: self.request.version,
            image,
            options: options.or(&self.request.options),
            deadline,
        };
        let claim = Claim::default();
        let turn = Turn {
            stream: self.stream.key,
            kind: Kind::Frame,
            claim: claim.clone(),
            detect: self.detect(),
        };
        match self.detector.submit(request, received, permit, turn, span) {
            Ok(pending) => State::InLine(pending, claim),
            Err(error) => State::Done(Err(error).into()),
        }
    }
}
