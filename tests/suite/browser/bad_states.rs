//! What both pages say of a server that is in a bad state, with pictures for people to look at.

use std::env::temp_dir;
use std::time::Duration;

use actix_web::rt::System;
use postgres_server::PostgresServer;
use rustix::fs::statvfs;
use serde_json::json;

use super::admin_page::{sign_in, wait};
use super::firefox::Firefox;
use super::page_check::picture;
use super::profile::Profile;
use super::turn::Turn;
use crate::harness::{
    Agent, Authority, Channel, Cluster, ClusterPlan, Role, Sender, Server, WireServer, dynamo,
};
use crate::metrics::metrics_url;
use crate::postgresql;

/// Each node has an operator's page, and asks and judges often.
const PAGE: [&str; 2] = ["--metrics-listen=127.0.0.1:0", "--admin-page-interval-ms=100"];

/// A state as it appears to people.
struct Shown {
    /// The name of its pictures.
    name: &'static str,
    /// The class of the operator's verdict.
    class: &'static str,
    /// Parts of what the operator's page says.
    operator: &'static [&'static str],
    /// A part of what the public page says.
    visitor: &'static str,
}

const WORKS: &str = "This server is running.";

/// Opens the operator's page of a server and a public page, waits until they say what they should, and takes their pictures.
fn assert_shown(firefox: &mut Firefox, (server, visited): (&Server, &str), shown: &Shown) {
    let Shown { name, class, operator, visitor } = shown;
    let url = System::new().block_on(metrics_url(server));
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    sign_in(firefox, server, address);
    let says = |element: &str, text: &str| {
        let text = json!(text);
        format!("document.getElementById('{element}').textContent.includes({text})")
    };
    let verdict = format!("document.getElementById('verdict').className === '{class}'");
    let said = |part: &&str| format!("({} || {})", says("verdict", part), says("findings", part));
    let found = operator.iter().map(said).collect::<Vec<_>>().join(" && ");
    // Code is marked.
    let raw = says("findings", "`");
    wait(firefox, &format!("{verdict} && {found} && !{raw}"));
    picture(firefox, &format!("state-{name}-operator"));
    firefox.open(visited);
    wait(firefox, &says("state", visitor));
    // An outage folds the steps for a device.
    wait(firefox, &format!("document.getElementById('setup').open === {}", *visitor == WORKS));
    picture(firefox, &format!("state-{name}-visitor"));
}

/// The public page of a server.
fn page(server: &Server) -> String {
    format!("{}/", server.origin())
}

/// Sends a push that a node cannot deliver at once.
fn push(channel: &Channel) {
    let sender = Sender::new();
    let push = sender.post(&channel.endpoint).ttl(60).body("message").send();
    System::new().block_on(push);
}

#[test]
fn both_pages_say_what_is_wrong_and_for_the_operator_what_to_do() {
    let _turn = Turn::wait();
    let elsewhere = Server::start();
    let profile = Profile::new(&elsewhere.socket_url());
    let mut firefox = Firefox::start(profile.path());
    of_one_server(&mut firefox);
    of_a_database(&mut firefox);
    of_a_cluster(&mut firefox);
}

fn of_one_server(firefox: &mut Firefox) {
    let disk = statvfs(temp_dir()).expect("the disk has a size");
    let min = format!("--disk-free-min={}", disk.f_bavail * disk.f_frsize / 2);
    let server = Server::start_with(&[&PAGE[..], &[&min]].concat());
    assert_shown(
        firefox,
        (&server, &page(&server)),
        &Shown {
            name: "disk-nearly-full",
            class: "warned",
            operator: &["messages are refused below"],
            visitor: WORKS,
        },
    );

    let authority = Authority::new();
    authority.issue_for(Duration::from_secs(10 * 24 * 60 * 60 + 3600));
    let ca = std::fs::read_to_string(authority.path("ca.pem")).expect("it was written");
    firefox.trust(&ca);
    let server = authority.server(&PAGE);
    assert_shown(
        firefox,
        (&server, &page(&server).replace("http:", "https:")),
        &Shown {
            name: "certificate-ends",
            class: "warned",
            operator: &["the certificate ends in 10 days, on "],
            visitor: WORKS,
        },
    );

    let server = Server::start_with(&[&PAGE[..], &["--connections-max=20"]].concat());
    // Their sockets stay open as long as it.
    let system = System::new();
    let agents = system.block_on(async {
        let mut agents = Vec::new();
        for _ in 0..19 {
            agents.push(Agent::subscribed(&server).await);
        }
        agents
    });
    assert_shown(
        firefox,
        (&server, &page(&server)),
        &Shown {
            name: "limit-reached",
            class: "warned",
            operator: &["connections_max = 20"],
            visitor: WORKS,
        },
    );
    drop(agents);
}

fn of_a_database(firefox: &mut Firefox) {
    let wire = WireServer::start();
    let server = Server::launch(dynamo::launch(&wire.url).with(&PAGE));
    drop(wire);
    assert_shown(
        firefox,
        (&server, &page(&server)),
        &Shown {
            name: "store-away",
            class: "bad",
            operator: &["Start the database"],
            visitor: "the database of this server does not answer. Only its operator can mend it.",
        },
    );

    let database = PostgresServer::start();
    let server = Server::launch(postgresql::on(&database).with(&PAGE));
    database.tell("stop");
    assert_shown(
        firefox,
        (&server, &page(&server)),
        &Shown {
            name: "store-hangs",
            class: "bad",
            operator: &["Start the database"],
            visitor: "the database of this server does not answer. Only its operator can mend it.",
        },
    );
    database.tell("go");
}

fn of_a_cluster(firefox: &mut Firefox) {
    let plan = ClusterPlan::of(2, 1).with(&PAGE);
    let mut cluster = Cluster::launch(plan);
    let channels = System::new().block_on(async {
        let mut channels = Vec::new();
        for node in &cluster.connection_nodes {
            let (agent, channel) = Agent::subscribed(node).await;
            channels.push((agent, channel));
        }
        channels
    });
    cluster.connection_nodes[0].kill();
    for _ in 0..3 {
        push(&channels[0].1);
    }
    assert_shown(
        firefox,
        (&cluster.endpoint_nodes[0], &page(&cluster.connection_nodes[1])),
        &Shown {
            name: "node-away",
            class: "warned",
            operator: &["does not answer"],
            visitor: WORKS,
        },
    );

    let ahead = ["--dev", "--clock-offset-s=1200"];
    let launch = cluster.launch_of(Role::Connection).with(&ahead);
    cluster.connection_nodes.push(Server::launch(launch));
    let (_agent, channel) = System::new().block_on(Agent::subscribed(&cluster.connection_nodes[2]));
    push(&channel);
    push(&channels[1].1);
    let both = &["1 node does not answer: ", "20 min ahead"];
    assert_shown(
        firefox,
        (&cluster.endpoint_nodes[0], &page(&cluster.connection_nodes[1])),
        &Shown { name: "node-away-clock-apart", class: "warned", operator: both, visitor: WORKS },
    );

    cluster.connection_nodes[0].restart();
    let alone = &["with a warning. The clock of ", "20 min ahead"];
    assert_shown(
        firefox,
        (&cluster.endpoint_nodes[0], &page(&cluster.connection_nodes[1])),
        &Shown { name: "clock-apart", class: "warned", operator: alone, visitor: WORKS },
    );
}
