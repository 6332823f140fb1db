//! The yardstick: a push server on plain actix-web and actix-web-actors that only does POST → frame → ack → 201.
//!
//! It has no tokens, VAPID, limits or store. Stored ratios are comparable as long as it stays as it is.

use std::collections::HashMap;
use std::io;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::{Actor, ActorContext, AsyncContext, Handler, Message, Recipient, StreamHandler};
use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, web};
use actix_web_actors::ws::{self, WebsocketContext};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tokio::sync::oneshot;

type Clients = web::Data<RwLock<HashMap<u64, Recipient<Push>>>>;

const NOT_POISONED: &str = "no holder of the lock panics";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Message)]
#[rtype(result = "()")]
struct Push {
    channel: String,
    data: String,
    encoding: String,
    acked: oneshot::Sender<()>,
}

struct Client {
    id: u64,
    clients: Clients,
    /// The start of its endpoints.
    origin: String,
    sent: u64,
    unacked: HashMap<String, oneshot::Sender<()>>,
}

#[derive(Deserialize)]
#[serde(tag = "messageType", rename_all = "snake_case")]
enum Incoming {
    Hello {},
    Register {
        #[serde(rename = "channelID")]
        channel: String,
    },
    Ack {
        updates: Vec<Update>,
    },
}

#[derive(Deserialize)]
struct Update {
    version: String,
}

/// Serves on a free port until the process is ended.
#[actix_web::main]
pub(crate) async fn serve() -> io::Result<()> {
    let clients = Clients::default();
    let server = HttpServer::new(move || {
        let app = App::new().app_data(clients.clone()).route("/", web::get().to(connect));
        app.route("/push/{id}/{channel}", web::post().to(push))
    });
    let server = server.bind("127.0.0.1:0")?;
    println!("The floor is listening on http://{}/", server.addrs()[0]);
    server.run().await
}

async fn connect(
    request: HttpRequest,
    frames: web::Payload,
    clients: Clients,
) -> Result<HttpResponse, Error> {
    let origin = format!("http://{}", request.connection_info().host());
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let client = Client { id, clients, origin, sent: 0, unacked: HashMap::new() };
    let answer = ws::WsResponseBuilder::new(client, &request, frames);
    answer.protocols(&["push-notification"]).start()
}

async fn push(
    request: HttpRequest,
    path: web::Path<(u64, String)>,
    body: web::Bytes,
    clients: Clients,
) -> HttpResponse {
    let (id, channel) = path.into_inner();
    let client = clients.read().expect(NOT_POISONED).get(&id).cloned();
    let Some(client) = client else { return HttpResponse::Gone().finish() };
    let encoding = request.headers().get("content-encoding").and_then(|name| name.to_str().ok());
    let encoding = encoding.unwrap_or_default().to_owned();
    let (acked, ack) = oneshot::channel();
    let push = Push { channel, data: URL_SAFE_NO_PAD.encode(&body), encoding, acked };
    if client.try_send(push).is_err() || ack.await.is_err() {
        return HttpResponse::ServiceUnavailable().finish();
    }
    let location = format!("http://{}/message", request.connection_info().host());
    HttpResponse::Created()
        .insert_header(("location", location))
        .insert_header(("ttl", "60"))
        .finish()
}

impl Actor for Client {
    type Context = WebsocketContext<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let recipient = context.address().recipient();
        self.clients.write().expect(NOT_POISONED).insert(self.id, recipient);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.clients.write().expect(NOT_POISONED).remove(&self.id);
    }
}

impl Handler<Push> for Client {
    type Result = ();

    fn handle(&mut self, push: Push, context: &mut Self::Context) {
        self.sent += 1;
        let version = format!("{}-{}", self.id, self.sent);
        let Push { channel, data, encoding, acked } = push;
        context.text(format!(
            r#"{{"messageType":"notification","channelID":"{channel}","version":"{version}","data":"{data}","headers":{{"encoding":"{encoding}"}}}}"#
        ));
        self.unacked.insert(version, acked);
    }
}

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Client {
    fn handle(
        &mut self,
        message: Result<ws::Message, ws::ProtocolError>,
        context: &mut Self::Context,
    ) {
        let text = match message {
            Ok(ws::Message::Text(text)) => text,
            Ok(ws::Message::Close(_)) | Err(_) => return context.stop(),
            Ok(_) => return,
        };
        match serde_json::from_str(&text) {
            Ok(Incoming::Hello {}) => context.text(format!(
                r#"{{"messageType":"hello","uaid":"{:032x}","status":200,"use_webpush":true,"broadcasts":{{}}}}"#,
                self.id
            )),
            Ok(Incoming::Register { channel }) => context.text(format!(
                r#"{{"messageType":"register","channelID":"{channel}","status":200,"pushEndpoint":"{}/push/{}/{channel}"}}"#,
                self.origin, self.id
            )),
            Ok(Incoming::Ack { updates }) => {
                for acked in updates.iter().filter_map(|update| self.unacked.remove(&update.version)) {
                    // The sender may have left.
                    let _ = acked.send(());
                }
            }
            Err(_) => context.stop(),
        }
    }
}
