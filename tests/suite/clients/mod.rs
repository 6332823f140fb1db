//! The client programs that users run, emulated frame by frame: what each sends, and what breaks it.
//!
//! `docs/unifiedpush.md` describes the programs, and `docs/sources.md` names where each behaviour is from.

mod device;
mod program;

use futures_util::future::join_all;
use serde_json::json;

use self::device::Device;
use self::program::ALL;
use crate::harness::{AT_ONCE, Cluster, ClusterPlan, Launch, Sender, Server, until};
use crate::rollover::Calendar;

#[actix_web::test]
async fn a_subscribed_app_receives_pushes_online_and_offline_once_each() {
    let server = Server::start();
    for program in ALL {
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
    }
}

#[actix_web::test]
async fn a_device_on_battery_gets_less_urgent_messages_when_it_charges() {
    let server = Server::start();
    for program in ALL {
        let (mut device, app) = Device::with_app(program, &server).await;
        device.set_urgency("normal").await;
        let sender = Sender::new();
        let push = async |urgency: &str| {
            let post = app.post(&sender, &server).header("urgency", urgency).body(urgency);
            assert_eq!(post.send().await.status, 201);
        };
        push("low").await;
        let (_, urgent) = tokio::join!(push("high"), device.notification());
        assert_eq!(urgent.body(), "high", "{}", program.name);
        device.send_collected_acks().await;
        assert_eq!(device.pending_notifications().await, []);
        device.set_urgency("very-low").await;
        assert_eq!(device.notification().await.body(), "low", "{}", program.name);
    }
}

#[actix_web::test]
async fn keepalives_are_answered() {
    let server = Server::start();
    for program in ALL {
        let (mut device, app) = Device::with_app(program, &server).await;
        device.keep_alive().await;
        tokio::join!(app.push(&server, "after"), device.notification());
    }
}

#[actix_web::test]
async fn two_sides_that_answer_each_ping_with_a_ping_stop() {
    let server = Server::start_with(&["--ping-floor-ms=600000"]);
    for program in ALL {
        let (mut device, app) = Device::with_app(program, &server).await;
        assert_eq!(device.exchange_empty_messages().await, 1, "{}", program.name);
        assert_eq!(device.exchange_empty_messages().await, 0, "{}", program.name);
        tokio::join!(app.push(&server, "after"), device.notification());
    }
}

#[actix_web::test]
async fn a_ping_after_the_floor_is_answered_again() {
    let server = Server::start_with(&["--ping-floor-ms=100"]);
    for program in ALL {
        let (mut device, _app) = Device::with_app(program, &server).await;
        for _ in 0..3 {
            until(AT_ONCE, "the ping is answered", async || {
                device.exchange_empty_messages().await > 0
            })
            .await;
        }
    }
}

#[actix_web::test]
async fn a_drained_device_and_a_replaced_one_notice_the_end_at_once() {
    let plan = ClusterPlan::of(2, 1).with_connection_arguments(&["--drain-s=1"]);
    let cluster = Cluster::launch(plan);
    let [draining, other] = [&cluster.connection_nodes[0], &cluster.connection_nodes[1]];
    let mut devices = join_all(ALL.map(|program| Device::with_app(program, draining))).await;
    for (device, _) in &mut devices {
        let mut newer = device.on_another_network();
        newer.connect(draining).await;
        device.closed_with(4409).await;
        std::mem::swap(device, &mut newer);
    }
    draining.signal("TERM");
    join_all(devices.iter_mut().map(|(device, _)| device.closed_with(1001))).await;
    for (device, app) in &mut devices {
        device.connect(other).await;
        let (_, after) =
            tokio::join!(app.push(&cluster.endpoint_nodes[0], "after"), device.notification());
        assert_eq!(after.body(), "after");
    }
}

#[actix_web::test]
async fn a_protocol_violation_is_answered_with_a_close_frame_in_every_program() {
    let server = Server::start();
    for program in ALL {
        let (mut device, _app) = Device::with_app(program, &server).await;
        device.violate().await;
    }
}

#[actix_web::test]
async fn after_a_restart_of_the_server_a_device_keeps_its_uaid_and_its_channels() {
    let mut server = Server::start();
    let devices = join_all(ALL.map(|program| Device::with_app(program, &server))).await;
    server.terminate();
    server.restart();
    for (mut device, app) in devices {
        device.closed_with(1001).await;
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
    for program in ALL {
        let (mut device, app) = Device::with_app(program, &server).await;
        let sender = Sender::new();
        let empty = app.post(&sender, &server).send();
        let (answer, got) = tokio::join!(empty, device.notification());
        assert_eq!((answer.status, got.body), (201, None), "{}", program.name);
        device.send_collected_acks().await;
    }
}

#[actix_web::test]
async fn an_uninstalled_app_does_not_keep_pushes_from_another_app() {
    let server = Server::start();
    for program in ALL {
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
    }
}

#[actix_web::test]
async fn a_device_may_register_again_after_a_refused_register() {
    let server = Server::start_with(&["--channels-max", "1"]);
    for program in ALL {
        let (mut device, app) = Device::with_app(program, &server).await;
        let refused = device.register("01020304-0506-4708-890a-0b0c0d0e0f10", None).await;
        let expected = json!({"messageType": "register", "status": 413, "pushEndpoint": "",
            "channelID": "01020304-0506-4708-890a-0b0c0d0e0f10", "reason": "too many channels"});
        assert_eq!(refused, expected, "{}", program.name);
        let again = device.register(&app.channel.id, None).await;
        assert_eq!(again["status"], 200, "{}", program.name);
    }
}
