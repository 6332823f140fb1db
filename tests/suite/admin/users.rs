//! Users who are dropped by hand, and records that count as none.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{AdminFixture, months_ago};
use crate::harness::{Agent, Channel, Sender, Server};

/// Beside the server and without it, and with a table that is never replaced.
#[actix_web::test]
async fn a_dropped_user_is_gone_with_its_rows_and_others_stay() {
    for arguments in [&[][..], &["--rotation=false"]] {
        for mut fixture in AdminFixture::engines(arguments) {
            let (beside, first) = offline(&fixture.server).await;
            let (without, second) = offline(&fixture.server).await;
            let (other, _) = offline(&fixture.server).await;
            drops(&fixture, &beside).await;
            is_gone(&fixture.server, &beside, &first).await;
            assert!(fixture.server.terminate().success());
            drops(&fixture, &without).await;
            fixture.server.restart();
            is_gone(&fixture.server, &without, &second).await;
            has_no_rows(&fixture, &[&beside, &without]).await;

            let _agent = Agent::returned_to(&fixture.server, &other, "waits").await;
        }
    }
}

/// An agent that is not connected, with a stored message.
async fn offline(server: &Server) -> (String, Channel) {
    Agent::offline_with(server, "waits").await
}

/// A second drop finds no user.
async fn drops(fixture: &AdminFixture, uaid: &str) {
    let drop = format!("users drop {uaid}");
    fixture.prints(&drop, &format!("dropped {uaid} with its channels and messages")).await;
    fixture.refuses(&drop, &format!("there is no user {uaid}")).await;
}

/// A push is answered as for an unknown user, and hello gives another uaid.
async fn is_gone(server: &Server, uaid: &str, channel: &Channel) {
    let gone = Sender::new().post(&channel.endpoint).ttl(60).body("x").send().await;
    gone.assert_error(410, 103);
    assert_ne!(Agent::uaid_for(server, uaid).await, uaid);
}

async fn has_no_rows(fixture: &AdminFixture, uaids: &[&str]) {
    let Some(tables) = fixture.tables() else { return };
    let listed = tables.list_tables().send().await.expect("the server answers");
    for name in listed.table_names() {
        let scanned = tables.scan().table_name(name).send().await.expect("the server answers");
        let items = scanned.items();
        let has = |uaid: &str| items.iter().any(|item| item.get("uaid") == Some(&text(uaid)));
        assert_eq!(uaids.iter().find(|uaid| has(uaid)), None, "{name}");
    }
}

#[actix_web::test]
async fn the_connection_of_a_dropped_user_ends_and_its_next_hello_gets_another_uaid() {
    let fixture = AdminFixture::embedded(&[]);
    let mut agent = Agent::new(&fixture.server).await;
    let (uaid, channel) = (agent.uaid().to_owned(), agent.register().await);
    drops(&fixture, &uaid).await;
    assert_eq!(agent.socket().closed().await.0, Some(4409));
    is_gone(&fixture.server, &uaid, &channel).await;
}

/// The connection node is another process, which the command does not reach.
#[actix_web::test]
async fn a_dropped_user_that_stays_connected_gets_no_push_and_another_uaid_at_its_next_hello() {
    let fixture = AdminFixture::dynamo(&[]);
    let mut agent = Agent::new(&fixture.server).await;
    let (uaid, channel) = (agent.uaid().to_owned(), agent.register().await);
    let drop = format!("users drop {uaid}");
    fixture.begins(&drop, "if the agent is connected, it gets a new id").await;
    agent.register().await;
    fixture.begins(&drop, &format!("{uaid} has no record: dropped its channels")).await;
    has_no_rows(&fixture, &[&uaid]).await;
    is_gone(&fixture.server, &uaid, &channel).await;
}

#[actix_web::test]
async fn a_record_of_another_router_type_counts_as_none_and_is_reported() {
    let fixture = AdminFixture::dynamo(&[]);
    let (uaid, channel) = offline(&fixture.server).await;
    let change = fixture.tables().unwrap().update_item().table_name("router");
    let change = change.key("uaid", text(&uaid)).update_expression("SET router_type = :type");
    change.expression_attribute_values(":type", text("fcm")).send().await.unwrap();
    is_gone(&fixture.server, &uaid, &channel).await;
    let reported = "- records with a router type or router data that is not served: 1; ";
    fixture.prints("tables status", reported).await;
    fixture.prints("tables status --json", "\"other_types\":1").await;
}

/// Without a bridge on this server: the agent is not gone, so its sender keeps the subscription.
#[actix_web::test]
async fn an_agent_of_autopushs_bridge_keeps_its_record_and_its_channels() {
    let fixture = AdminFixture::dynamo(&[]);
    let (uaid, channel) = offline(&fixture.server).await;
    let data = [("token", text("token")), ("creds", map([("senderID", text("app"))]))];
    let change = fixture.tables().unwrap().update_item().table_name("router");
    let change = change
        .key("uaid", text(&uaid))
        .update_expression("SET router_type = :type, router_data = :data")
        .expression_attribute_values(":type", text("fcm"))
        .expression_attribute_values(":data", map(data));
    change.send().await.unwrap();
    let sender = Sender::new();
    for _again in 0..2 {
        let refused = sender.post(&channel.endpoint).ttl(60).body("x").send().await;
        refused.assert_error(502, 900);
    }
    assert_ne!(Agent::uaid_for(&fixture.server, &uaid).await, uaid);
    fixture.prints("tables status --json", "\"other_types\":0").await;
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn map<const N: usize>(entries: [(&str, AttributeValue); N]) -> AttributeValue {
    AttributeValue::M(entries.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The weekly `tables create` makes next month's table.
#[actix_web::test]
async fn rotation_off_freezes_the_month_that_agents_are_on() {
    for mut fixture in AdminFixture::engines(&["--rotation=true"]) {
        let (uaid, channel) = offline(&fixture.server).await;
        let (this, next) = (months_ago(0), months_ago(0).next());
        fixture.stdout_of("tables create").await;
        fixture.prints("tables list", &next.to_string()).await;
        assert!(fixture.server.terminate().success());
        fixture.restart_with("--rotation=true", "--rotation=false");

        let mut agent = Agent::returned_to(&fixture.server, &uaid, "waits").await;
        Sender::new().push_to(&mut agent, &channel, "more").await;
        Agent::new(&fixture.server).await.register().await;
        let frozen = format!("- rotation is off: {this} stays in use");
        for expected in [frozen, format!("\n{this}  2 ")] {
            fixture.prints("tables status", &expected).await;
        }
        let reason = "rotation is off, and this table is the one in use";
        fixture.refuses(&format!("tables drop {this} --yes --force"), reason).await;
        fixture.stdout_of(&format!("tables drop {next} --yes")).await;
    }
}

#[actix_web::test]
async fn records_of_a_clock_that_was_ahead_are_reported_and_repaired_while_no_server_runs() {
    let (ahead, right) = ("--clock-offset-s=10800", "--clock-offset-s=0");
    for mut fixture in AdminFixture::engines(&["--dev", ahead]) {
        let (uaid, channel) = offline(&fixture.server).await;
        assert!(fixture.server.terminate().success());
        fixture.restart_with(ahead, right);
        let ahead = "- a record is of a connection 3 hours in the future: ";
        fixture.prints("tables status", ahead).await;
        let expected = match fixture.is_embedded() {
            true => "a server is running on this store: stop it first",
            false => "stop all of them, then add --server-stopped",
        };
        fixture.refuses("users repair", expected).await;

        assert!(fixture.server.terminate().success());
        for count in [1, 0] {
            let repaired = fixture.stdout_of("users repair --server-stopped").await;
            let expected = format!("{count} of 1 record in the future, set to now\n");
            assert_eq!(repaired, expected);
            assert!(!fixture.stdout_of("tables status").await.contains("in the future"));
        }
        fixture.server.restart();
        let mut agent = Agent::returned_to(&fixture.server, &uaid, "waits").await;
        Sender::new().push_to(&mut agent, &channel, "more").await;
    }
}
