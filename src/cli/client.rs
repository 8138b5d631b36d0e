//! What the commands that ask a server have in common: which one, over what connection, and how it says no.

mod refusal;

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tonic::transport::{Channel, Endpoint};

pub(super) use refusal::Refusal;

use crate::grpc::pb;
use crate::grpc::pb::detection_service_client::DetectionServiceClient;

/// The server's own limit may be smaller; it says so itself.
const MAX_MESSAGE: usize = 256 << 20;

/// Which server is asked, and which of its models.
#[derive(Debug, Args)]
pub(super) struct ClientFlags {
    /// The server's gRPC address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:50051")]
    addr: String,
    /// The model; the server's default when unset.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(super) model: String,
}

// === impl ClientFlags ===

impl ClientFlags {
    pub(super) async fn connect(
        &self,
        timeout: Duration,
    ) -> anyhow::Result<DetectionServiceClient<Channel>> {
        let addr = &self.addr;
        let channel = Endpoint::from_shared(format!("http://{addr}"))
            .with_context(|| format!("--addr {addr} is not HOST:PORT"))?
            .connect_timeout(timeout)
            .connect()
            .await
            .with_context(|| {
                format!("no server answers at {addr}; start one with `detectd serve`")
            })?;
        Ok(DetectionServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE))
    }
}

/// One call. The server is told of the timeout as well: it does nothing for an answer that nobody waits for.
pub(super) async fn detect(
    client: &mut DetectionServiceClient<Channel>,
    request: pb::DetectRequest,
    timeout: Duration,
) -> anyhow::Result<pb::DetectResponse> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(timeout);
    match client.detect(request).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => bail!(Refusal::from(&status).to_string()),
    }
}
