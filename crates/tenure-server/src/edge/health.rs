//! gRPC's health check. There is one service to ask about, the empty name: the server as a whole, which serves
//! from its start until it stops.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use tenure_proto::health::health_check_response::ServingStatus;
use tenure_proto::health::{HealthCheckRequest, HealthCheckResponse, health_server};
use tokio_stream::Stream;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

use super::{Context, status};

pub(super) struct Health {
    ctx: Context,
}

impl Health {
    pub(super) fn new(ctx: Context) -> Health {
        Health { ctx }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if request.get_ref().service.is_empty() {
            Ok(Response::new(answer(ServingStatus::Serving)))
        } else {
            Err(Status::new(Code::NotFound, "unknown service"))
        }
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status> {
        let status = match request.get_ref().service.is_empty() {
            true => ServingStatus::Serving,
            // A service may appear later, so this is an answer and no error.
            false => ServingStatus::ServiceUnknown,
        };
        let stream = Watching { first: Some(answer(status)), stopped: Some(self.ctx.stopped()) };
        Ok(Response::new(Box::pin(stream)))
    }
}

/// Says one thing and then waits for the end of the server.
struct Watching {
    first: Option<HealthCheckResponse>,
    /// `None` once that was said.
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Stream for Watching {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(stopped) = &mut self.stopped else { return Poll::Ready(None) };
        stopped.as_mut().poll(cx).map(|()| {
            self.stopped = None;
            Some(Err(status::stopped()))
        })
    }
}
