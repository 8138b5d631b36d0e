//! `detectd.v1.DetectionService`: the calls of one message. Streams are in [`super::stream`].

use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::body::PermitSlot;
use super::convert;
use super::pb::detection_service_server::DetectionService;
use super::pb::{
    DetectRequest, DetectResponse, DetectStreamRequest, ListModelsRequest, ListModelsResponse,
};
use super::reply::ReplyPermit;
use super::status::status;
use super::stream;
use crate::pipeline::{DetectError, Detector};
use crate::scheduling::Deadline;

/// The service. One for all connections.
#[derive(Debug)]
pub(super) struct Service {
    detector: Detector,
    streams: stream::Limits,
}

// === impl Service ===

impl Service {
    pub(super) fn new(detector: Detector, streams: stream::Limits) -> Self {
        Self { detector, streams }
    }
}

#[tonic::async_trait]
impl DetectionService for Service {
    async fn detect(
        &self,
        request: Request<DetectRequest>,
    ) -> Result<Response<DetectResponse>, Status> {
        let deadline = request
            .extensions()
            .get()
            .copied()
            .unwrap_or(Deadline::NEVER);
        // The guard of the body has left it there.
        let permit = request
            .extensions()
            .get::<PermitSlot>()
            .and_then(PermitSlot::take);
        let caller = request.extensions().get().cloned().unwrap_or_default();
        let answer = async {
            let request = convert::request(request.into_inner(), deadline)?;
            let permit = match permit {
                Some(permit) => permit,
                None => self.detector.admit(&caller, request.image.len() as u64)?,
            };
            self.detector.detect(request, permit).await
        };
        match answer.await {
            Ok(detections) => {
                let message = convert::response(detections);
                let bytes = message.encoded_len() as u64;
                let permit = self.detector.admit_reply(&caller, bytes);
                let permit = permit.map_err(|error| status(&error.into()))?;
                let mut response = Response::new(message);
                let permit = ReplyPermit(Arc::new(permit));
                response.extensions_mut().insert(permit);
                Ok(response)
            }
            Err(error) => {
                log_fault(&error);
                Err(status(&error.into()))
            }
        }
    }

    type DetectStreamStream = stream::Outgoing;

    async fn detect_stream(
        &self,
        request: Request<Streaming<DetectStreamRequest>>,
    ) -> Result<Response<Self::DetectStreamStream>, Status> {
        let outgoing = stream::serve(self.detector.clone(), self.streams.clone(), request);
        Ok(Response::new(outgoing))
    }

    async fn list_models(
        &self,
        _request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let readiness = self.detector.readiness();
        let models = readiness
            .borrow()
            .models()
            .iter()
            .map(convert::listed)
            .collect();
        Ok(Response::new(ListModelsResponse { models }))
    }
}

/// Tells the operator what the caller is not told: the cause of a fault of ours.
pub(super) fn log_fault(error: &DetectError) {
    match error {
        DetectError::Head(cause) => tracing::error!(%cause, "a network's output cannot be read"),
        // Logged where they happened, with what was known there.
        DetectError::Inference(_) | DetectError::InstanceLost | DetectError::Panicked { .. } => {}
        // Not faults of ours.
        DetectError::ModelNotFound { .. }
        | DetectError::NoDefaultModel { .. }
        | DetectError::ModelNotReady { .. }
        | DetectError::InvalidOption { .. }
        | DetectError::Picture(_)
        | DetectError::Overloaded { .. }
        | DetectError::DeadlineInfeasible { .. }
        | DetectError::TooManyStreams { .. }
        | DetectError::DeadlineExceeded
        | DetectError::Draining => {}
    }
}
