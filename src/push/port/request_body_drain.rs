//! Request bodies that no handler reads to the end.
//!
//! When a request is answered before its body has arrived, actix-http drains the connection for a
//! moment and closes it. It does so only for a body of known length. A chunked body it reads to the
//! end without a timer, so a client that never ends the body keeps its connection for ever. If the
//! body is still referenced when the response is sent, actix-http closes the connection instead. So
//! the response keeps a reference to the body of its request.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage};
use futures_util::Stream;

/// A request body that the handler reads and the response references.
#[derive(Clone)]
struct SharedBody(Rc<RefCell<Payload>>);

/// A response body with a reference to the request body, dropped once the response is sent.
struct ResponseWithRequestBody {
    body: BoxBody,
    _request_body: SharedBody,
}

/// Middleware that keeps a chunked request body until the response is sent.
pub async fn hold_until_answered(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // An invalid Transfer-Encoding was refused before.
    if !request.chunked().unwrap_or(true) {
        return next.call(request).await;
    }
    let body = SharedBody(Rc::new(RefCell::new(request.take_payload())));
    request.set_payload(Payload::Stream { payload: Box::pin(body.clone()) });
    let answer = next.call(request).await?;
    Ok(answer.map_body(|_, answer| {
        ResponseWithRequestBody { body: answer, _request_body: body }.boxed()
    }))
}

impl Stream for SharedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}

impl MessageBody for ResponseWithRequestBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
