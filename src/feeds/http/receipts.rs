//! `GET /receipts/{token}`: the receipts of a subscription, which is a feed of its own (RFC 8030 §6.3).
//!
//! The RFC pushes receipts over HTTP/2; clients have dropped that, so there are a page, a long poll and server-sent events,
//! as of any feed. The URL is a capability: its holder reads the receipts.

use std::slice;

use actix_web::http::header::AUTHORIZATION;
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Path, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use slog::debug;
use state_machine::Receipt;
use state_machine::feed::{FeedPage, FeedSyncId, Update};

use super::error::FeedError;
use super::query::ReadQuery;
use super::service::FeedService;
use super::tokens::{Grant, Scopes};
use super::{events, read};
use crate::push::app::EndpointRole;
use crate::push::methods::{cors, preflight_or_refused, read as reading};
use crate::push::request_id::request_id;
use crate::push::vapid::{Credentials, key_hash};

/// Receipts of one page, so that it never counts among the large ones (`feed_pages_max`): each has about 250 bytes.
const PAGE_ROWS: usize = 250;

/// Answers requests for receipts with `feeds`.
pub(super) fn routes(feeds: &Data<FeedService>, service: &mut ServiceConfig) {
    service.service(
        web::resource("/receipts/{token}")
            .app_data(feeds.clone())
            .wrap(DefaultHeaders::new().add(("cache-control", "no-store")))
            .wrap(cors())
            .route(reading().to(answer))
            .default_service(preflight_or_refused("GET, HEAD, OPTIONS")),
    );
}

async fn answer(
    request: HttpRequest,
    token: Path<String>,
    service: Data<FeedService>,
    app: Data<EndpointRole>,
) -> Result<HttpResponse, FeedError> {
    let answer = serve(&request, &token, &service, &app).await;
    answer.inspect_err(|error| {
        debug!(service.log, "refused a request for receipts"; "request" => request_id(request.headers()),
            "errno" => error.errno().number(), "reason" => %error);
    })
}

async fn serve(
    request: &HttpRequest,
    token: &str,
    service: &Data<FeedService>,
    app: &Data<EndpointRole>,
) -> Result<HttpResponse, FeedError> {
    let grant = grant(request, token, service, app).ok_or(FeedError::NoSuchReceipts)?;
    let mut query = ReadQuery::read(request, &service.limits)?;
    query.limit.rows = query.limit.rows.min(PAGE_ROWS);
    let missing = |error| match error {
        FeedError::NoSuchFeed => FeedError::NoSuchReceipts,
        other => other,
    };
    // A node that was killed may have left some of them unpublished, and no sweep looks for them.
    service.feeds.publish(slice::from_ref(&grant.feed));
    if query.is_stream {
        let page = read::first_page(service, &grant.feed, query).await.map_err(missing)?;
        if query.is_head {
            return Ok(events::head());
        }
        let app = app.clone();
        return events::stream(service, grant, &page, move |page| text(page, app.origins.own()));
    }
    let ends_at = grant.expires;
    let page = read::page(service, grant, query).await.map_err(missing)?;
    let has_ended = ends_at.is_some_and(|end| end <= service.clock.now());
    if page.updates.is_empty() && has_ended {
        // It ended during the wait (RFC 8030 §7.3).
        return Err(FeedError::NoSuchReceipts);
    }
    let receipts = page.updates.iter().filter_map(|update| Entry::of(update, app.origins.own()));
    let receipts = receipts.collect();
    Ok(HttpResponse::Ok().json(Page { receipts, cursor: page.cursor, head: page.head }))
}

/// What the holder of the URL may read: none if it is not one of this server's, if it has ended, and if the request is
/// signed by another sender. Without credentials the URL is enough.
fn grant(
    request: &HttpRequest,
    token: &str,
    service: &FeedService,
    app: &EndpointRole,
) -> Option<Grant> {
    let (headers, now) = (request.headers(), service.clock.now());
    let subscription = app.receipt_urls.open(token)?;
    if headers.contains_key(AUTHORIZATION) {
        let credentials = Credentials::read(headers).ok()??;
        app.vapid.verify(&credentials, now).ok()?;
        let key = key_hash(credentials.key());
        subscription.is_of(Some(key)).then_some(())?;
    }
    let feed = subscription.feed();
    let grant = Grant { expires: feed.receipts_end(), feed, scopes: Scopes::Read };
    (!grant.is_over(now)).then_some(grant)
}

#[derive(Serialize)]
struct Page {
    receipts: Vec<Entry>,
    cursor: FeedSyncId,
    head: FeedSyncId,
}

/// A receipt as JSON: a line of a page, and the data of an event.
#[derive(Serialize)]
struct Entry {
    id: FeedSyncId,
    /// The `Location` of the push.
    message: String,
    status: &'static str,
    /// The code of the ack.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

impl Entry {
    /// None of a value that this program does not write.
    fn of(update: &Update, origin: &str) -> Option<Self> {
        let (status, code) = match Receipt::parse(update.value.as_ref()?)? {
            Receipt::Delivered(code) => ("delivered", Some(code.number())),
            Receipt::Expired => ("expired", None),
        };
        let message = format!("{origin}{}", update.key);
        Some(Self { id: update.feed_sync_id, message, status, code })
    }
}

/// The events of a page.
fn text(page: &FeedPage, origin: &str) -> String {
    let entries = page.updates.iter().filter_map(|update| Entry::of(update, origin));
    let mut text = entries.map(|entry| events::event(entry.id, entry.status, &entry)).collect();
    events::move_cursor(&mut text, page);
    text
}
