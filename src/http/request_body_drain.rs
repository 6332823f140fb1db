//! What is done with a body that nobody reads to its end.
//!
//! A connection whose request was answered before its body had come is read on for a moment and then closed. actix-http does
//! that by itself for a body of known length. One that comes in chunks it would read to its end, however long
//! that takes, with no timer: a peer that never ends it keeps its connection for ever. It does not do so
//! where somebody still holds the body when the answer has gone out, so that is done here.

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

/// A body that its handler reads and the answer holds.
#[derive(Clone)]
struct SharedBody(Rc<RefCell<Payload>>);

/// An answer that holds the body of its request until it has gone out.
struct ResponseWithRequestBody {
    body: BoxBody,
    _request_body: SharedBody,
}

/// Holds a body that comes in chunks until its request was answered.
pub async fn hold_until_answered(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    // What is no transfer coding was refused before.
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
