//! The gRPC door.
//!
//! | file | job |
//! |---|---|
//! | [`pb`] | the generated types, which stay in this room |
//! | [`address`], [`listener`], [`connection`], [`frames`] | sockets, the accept loop, one connection's life and progress |
//! | [`gate`] | what is decided on a call's headers |
//! | [`request_id`], [`deadline`], [`caller`] | some of those headers |
//! | [`body`], [`reply`] | a message's size, known before it is held; a reply's, until it is taken |
//! | [`unary`], [`stream`] | `DetectionService` |
//! | [`convert`] | the contract's messages from and to the project's types |
//! | [`error`], [`status`] | what can go wrong, and what of it goes over the wire |
//! | [`health`] | `grpc.health.v1` |
//! | [`metrics`] | what is measured here |
//!
//! It translates, and decides nothing that another door would have to decide again.

pub mod address;
mod body;
mod caller;
pub mod connection;
mod convert;
mod deadline;
pub mod error;
mod frames;
mod gate;
mod health;
mod listener;
mod metrics;
pub mod pb;
mod reply;
mod request_id;
mod status;
pub mod stream;
mod unary;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::pipeline::Detector;
use address::Listener;
use body::MessageLimits;
use gate::Gate;
use health::HealthKeeper;
pub use metrics::Metrics;
use pb::detection_service_server::DetectionServiceServer;
use request_id::RequestIds;

/// The largest message to health and reflection, in bytes: they are asked by name, and are not counted by
/// admission, so what they could be made to hold must be small by itself.
const MAX_QUESTION: usize = 4 << 10;

/// The door's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to listen: `HOST:PORT`, where port 0 takes any, or `unix:` and a path.
    pub address: String,
    /// The largest message taken, in bytes, for every method alike.
    pub max_message_size: usize,
    /// Whether clients may ask what services there are.
    pub reflection: bool,
    /// The header in which a trusted proxy names whose call it is, so that sources share alike; empty is none, and a
    /// source is its address. Whoever can set it can pass for anybody: set it only behind a proxy that does.
    pub source_header: String,
    /// What a connection may do.
    pub connection: connection::Config,
    /// What a stream may do.
    pub stream: stream::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: "0.0.0.0:50051".to_owned(),
            // 32 MiB: a 50-megapixel JPEG of good quality fits.
            max_message_size: 32 << 20,
            reflection: true,
            source_header: String::new(),
            connection: connection::Config::default(),
            stream: stream::Config::default(),
        }
    }
}

// === impl Config ===

impl Config {
    /// Whether [`Config::source_header`] is empty, or a name that a header can have.
    pub fn names_a_header(&self) -> bool {
        self.source_header.is_empty() || self.source_header.parse::<http::HeaderName>().is_ok()
    }
}

/// How the door is told to close.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// From here on health says NOT_SERVING; requests are still taken.
    pub draining: CancellationToken,
    /// From here on no connection is accepted, those that are open are told to finish, and new requests on
    /// them are refused.
    pub stop: CancellationToken,
    /// How long they may take.
    pub grace: Duration,
}

/// Serves gRPC on `listener` until told to stop, then ends within the grace period.
pub async fn serve(
    listener: Listener,
    config: &Config,
    detector: Detector,
    metrics: Metrics,
    shutdown: Shutdown,
) {
    let health = HealthKeeper::new(detector.readiness());
    let health_service = HealthServer::new(health.service())
        .max_decoding_message_size(MAX_QUESTION)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let kept = tokio::spawn(health.keep(shutdown.draining.clone(), shutdown.stop.clone()));

    let streams = stream::Limits {
        config: config.stream.clone(),
        message_patience: config.connection.message_patience,
        max_message_size: config.max_message_size as u64,
    };
    let detection = DetectionServiceServer::new(unary::Service::new(detector.clone(), streams))
        .max_decoding_message_size(config.max_message_size)
        .max_encoding_message_size(config.max_message_size)
        .accept_compressed(CompressionEncoding::Gzip)
        // Answered compressed only where the client says that it reads it.
        .send_compressed(CompressionEncoding::Gzip);
    let mut routes = Routes::new(detection).add_service(health_service);
    if config.reflection {
        let configure = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Tools know the one or the other.
        match (configure().build_v1(), configure().build_v1alpha()) {
            (Ok(v1), Ok(v1alpha)) => {
                let v1 = v1
                    .max_decoding_message_size(MAX_QUESTION)
                    .accept_compressed(CompressionEncoding::Gzip)
                    .send_compressed(CompressionEncoding::Gzip);
                let v1alpha = v1alpha
                    .max_decoding_message_size(MAX_QUESTION)
                    .accept_compressed(CompressionEncoding::Gzip)
                    .send_compressed(CompressionEncoding::Gzip);
                routes = routes.add_service(v1).add_service(v1alpha);
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "reflection is not available")
            }
        }
    }
    let gate = Gate {
        detector,
        limits: MessageLimits {
            max_size: config.max_message_size as u64,
            patience: config.connection.message_patience,
        },
        source_header: config.source_header.parse().ok(),
        names: Arc::new(RequestIds::new()),
        metrics,
    };
    let router = routes.prepare().into_axum_router();
    let router = router.layer(axum::middleware::from_fn_with_state(gate, gate::pass));
    let connections = Arc::new(config.connection.clone());
    listener::serve(listener, router, connections, shutdown.stop, shutdown.grace).await;
    kept.abort();
}
