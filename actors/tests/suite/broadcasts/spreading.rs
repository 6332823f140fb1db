//! Which agents get a change, and when.

use serde_json::json;
use state_machine::Span;

use super::{ID, SPREAD, Town, told, told_one};
use crate::clockwork::{self, pass, settle};
use crate::feeds::FeedStore;

const SECOND: Span = Span::from_secs(1);

#[clockwork::test]
async fn a_change_is_sent_once_to_each_of_a_thousand_agents_evenly_spread() {
    let town = Town::informed().await;
    let mut agents = town.agents(1000, "1").await;
    town.puts("2").await;
    let mut times = vec![0; agents.len()];
    for second in 0..60 {
        pass(SECOND).await;
        let told = told(&mut agents);
        let count = told.iter().flatten().count();
        assert!((15..=18).contains(&count), "{count} in second {second}");
        for (times, told) in times.iter_mut().zip(told) {
            assert!(told.as_ref().is_none_or(|version| version == "2"));
            *times += usize::from(told.is_some());
        }
    }
    assert!(times.iter().all(|times| *times == 1));
    pass(SPREAD).await;
    assert_eq!(told(&mut agents).iter().flatten().count(), 0);
}

#[clockwork::test]
async fn changes_during_a_fan_out_are_sent_once_a_period() {
    let town = Town::informed().await;
    let mut agents = town.agents(100, "1").await;
    town.puts("2").await;
    let (mut heard, mut frames) = (vec![String::new(); agents.len()], 0);
    for second in 0..120 {
        if second == 30 {
            town.puts("3").await;
            town.puts("4").await;
        }
        pass(SECOND).await;
        for (heard, told) in heard.iter_mut().zip(told(&mut agents)) {
            frames += usize::from(told.is_some());
            *heard = told.unwrap_or(std::mem::take(heard));
        }
        if second == 59 {
            assert_eq!(heard.iter().filter(|version| version.is_empty()).count(), 0);
        }
    }
    assert!(heard.iter().all(|version| version == "4"));
    assert!((145..=155).contains(&frames), "{frames}: half of them received both");
}

#[clockwork::test]
async fn an_agent_that_connects_during_a_fan_out_gets_the_change_in_hello() {
    let town = Town::informed().await;
    let mut early = town.agents(10, "1").await;
    town.puts("2").await;
    pass(SECOND).await;
    let (mut late, hello) = town.agent(990, "1").await;
    assert_eq!(hello, json!({ID: "2"}));
    pass(SPREAD).await;
    pass(SPREAD).await;
    assert_eq!(told(&mut early).iter().flatten().count(), 10);
    assert_eq!(told_one(&mut late), None);
    town.puts("3").await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut late).as_deref(), Some("3"));
}

#[clockwork::test]
async fn an_agent_that_left_does_not_stop_the_fan_out() {
    let town = Town::informed().await;
    let mut agents = town.agents(10, "1").await;
    agents.remove(3).hangs_up().await;
    settle().await;
    town.puts("2").await;
    pass(SPREAD).await;
    assert!(told(&mut agents).iter().all(|told| told.as_deref() == Some("2")));
}

#[clockwork::test]
async fn a_broadcast_is_sent_when_it_is_created() {
    let town = Town::on(&FeedStore::new()).await;
    let (mut agent, hello) = town.agent(500, "0").await;
    assert!(hello["errors"][ID].is_string(), "{hello}");
    town.puts("1").await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut agent).as_deref(), Some("1"));
}

#[clockwork::test]
async fn an_agent_that_subscribes_later_gets_the_broadcast_at_once_and_then_with_the_others() {
    let town = Town::informed().await;
    let mut agent = crate::node::UserAgent::new(&town.node, 1).await;
    agent.says(&json!({"messageType": "broadcast_subscribe", "broadcasts": {ID: "0"}}));
    settle().await;
    assert_eq!(told_one(&mut agent).as_deref(), Some("1"));
    town.puts("2").await;
    pass(SPREAD).await;
    assert_eq!(told_one(&mut agent).as_deref(), Some("2"));
}

#[clockwork::test]
async fn a_fan_out_of_no_time_sends_to_all_at_once() {
    let town = Town::within(&FeedStore::new(), Span::ZERO).await;
    town.puts("1").await;
    let mut agents = town.agents(10, "1").await;
    town.puts("2").await;
    pass(Span(1)).await;
    assert!(told(&mut agents).iter().all(|told| told.as_deref() == Some("2")));
}
