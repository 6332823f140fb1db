//! The client programs that users run, emulated frame by frame: what each sends, and what breaks it.
//!
//! `docs/unifiedpush.md` describes the programs, and `docs/sources.md` names where each behaviour is from.

mod device;
mod program;

use futures_util::future::join_all;

use self::device::Device;
use self::program::{ALL, Program};
use crate::harness::{Launch, Sender, Server};
use crate::rollover::Calendar;

/// Runs a test once for each program.
async fn for_each_program(test: impl AsyncFn(&'static Program)) {
    for program in ALL {
        test(program).await;
    }
}

#[actix_web::test]
async fn a_subscribed_app_receives_pushes_online_and_offline_once_each() {
    let server = Server::start();
    for_each_program(async |program| {
        let (mut device, app) = Device::with_app(program, &server).await;
        let (_, online) = tokio::join!(app.push(&server, "online"), device.notification());
        assert_eq!((online.body(), &online.channel), ("online", &app.channel.id));
        device.send_collected_acks().await;
        assert_eq!(device.pending_notifications().await, []);
        device.disconnect();

        app.push(&server, "offline").await;
        device.connect(&server).await;
        assert_eq!(device.notification().await.body(), "offline", "{}", program.name);
        device.send_collected_acks().await;
        device.pending_notifications().await;
        device.disconnect();

        device.connect(&server).await;
        assert_eq!(device.pending_notifications().await, [], "{}", program.name);
    })
    .await;
}

#[actix_web::test]
async fn keepalives_are_answered() {
    let server = Server::start();
    for_each_program(async |program| {
        let (mut device, app) = Device::with_app(program, &server).await;
        device.keep_alive().await;
        tokio::join!(app.push(&server, "after"), device.notification());
    })
    .await;
}

#[actix_web::test]
async fn after_a_restart_of_the_server_a_device_keeps_its_uaid_and_its_channels() {
    let mut server = Server::start();
    let devices = join_all(ALL.map(|program| Device::with_app(program, &server))).await;
    server.terminate();
    server.restart();
    for (mut device, app) in devices {
        device.closed().await;
        device.connect(&server).await;
        let (_, after) = tokio::join!(app.push(&server, "after"), device.notification());
        assert_eq!(after.body(), "after");
    }
}

#[actix_web::test]
async fn a_device_moves_to_the_next_month_with_its_channels_and_its_messages() {
    let calendar = Calendar::next_november();
    let mut server = Server::start_with(&calendar.in_november().each_ref().map(String::as_str));
    let mut devices = join_all(ALL.map(|program| Device::with_app(program, &server))).await;
    for (device, app) in &mut devices {
        device.disconnect();
        app.push(&server, "from November").await;
    }
    server.terminate();
    server.restart_as(Launch::default().with(&calendar.in_december()));
    for (mut device, app) in devices {
        device.connect(&server).await;
        assert_eq!(device.notification().await.body(), "from November");
        device.send_collected_acks().await;
        let (_, after) = tokio::join!(app.push(&server, "in December"), device.notification());
        assert_eq!(after.body(), "in December");
    }
}

#[actix_web::test]
async fn a_push_without_a_body_arrives_whether_it_is_acked_or_not() {
    let server = Server::start();
    for_each_program(async |program| {
        let (mut device, app) = Device::with_app(program, &server).await;
        let sender = Sender::new();
        let empty = app.post(&sender, &server).send();
        let (answer, got) = tokio::join!(empty, device.notification());
        assert_eq!((answer.status, got.body), (201, None), "{}", program.name);
        device.send_collected_acks().await;
    })
    .await;
}

#[actix_web::test]
async fn an_uninstalled_app_does_not_keep_pushes_from_another_app() {
    let server = Server::start();
    for_each_program(async |program| {
        let (mut device, gone) = Device::with_app(program, &server).await;
        let kept = device.install().await;
        device.uninstall(&gone);
        device.disconnect();
        for _ in 0..10 {
            gone.push(&server, "to nowhere").await;
        }
        kept.push(&server, "kept").await;
        for _ in 0..2 {
            device.connect(&server).await;
            let mut got = device.notification().await;
            while got.channel != kept.channel.id {
                got = device.notification().await;
            }
            device.send_collected_acks().await;
            kept.push(&server, "kept").await;
            device.disconnect();
        }
    })
    .await;
}

#[actix_web::test]
async fn a_device_may_register_again_after_a_refused_register() {
    let server = Server::start_with(&["--channels-max", "1"]);
    for_each_program(async |program| {
        let (mut device, app) = Device::with_app(program, &server).await;
        let refused = device.register("01020304-0506-4708-890a-0b0c0d0e0f10", None).await;
        assert_eq!(
            (&refused["messageType"], &refused["status"]),
            (&"register".into(), &413.into())
        );
        let again = device.register(&app.channel.id, None).await;
        assert_eq!(again["status"], 200, "{}", program.name);
    })
    .await;
}
