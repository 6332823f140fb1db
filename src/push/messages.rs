//! `DELETE /m/{id}`: a sender withdraws a stored message. In RFC 8030 §6.2 the user agent acks so.

use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use slog::warn;
use storage::StoreError;

use super::app::EndpointRole;
use super::error::PushError;
use super::port::request_id::request_id;

/// Deletes the message, but not a later one of its topic that replaced it.
pub(super) async fn delete(
    request: HttpRequest,
    id: Path<String>,
    app: Data<EndpointRole>,
) -> Result<HttpResponse, PushError> {
    let (uaid, message) = app.message_urls.decrypt(&id).ok_or(PushError::NoSuchMessage)?;
    let common = &app.common;
    let failed = |error: StoreError| {
        warn!(common.log, "the store failed to delete a message";
            "request" => request_id(request.headers()), "error" => %error);
        PushError::Unavailable
    };
    let record = common.store.record(uaid).await.map_err(failed)?.ok_or(PushError::MessageGone)?;
    let months = [Some(record.curmonth), record.oldmonth].into_iter().flatten().collect();
    match common.store.withdraw_message(uaid, months, message).await.map_err(failed)? {
        false => Err(PushError::MessageGone),
        true => Ok(HttpResponse::NoContent().finish()),
    }
}
