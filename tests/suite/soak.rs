//! A short soak: whatever strangers do, the pushes of an honest client are taken and arrive.

#[path = "../load/soak/run/mod.rs"]
mod run;

use std::time::Duration;

use run::{Attack, Plan, Row, measure};

#[tokio::test]
async fn an_honest_client_loses_nothing_to_attackers() {
    let plan = Plan {
        kalends: env!("CARGO_BIN_EXE_kalends").into(),
        arguments: Vec::new(),
        running: None,
        duration: Duration::from_secs(1),
        messages: 1000,
    };
    for attack in [
        Attack::Fill,
        Attack::Upgrades,
        Attack::Records,
        Attack::Carry,
        Attack::Slow,
        Attack::Subscription,
        Attack::Key,
        Attack::Address,
        Attack::Disk,
        Attack::Frames,
        Attack::Pipelines,
    ] {
        let row = measure(&plan, attack).await;
        let report = &row.report;
        let shown = format!("{}\n{row}", Row::HEAD);
        let done = row.done + row.refused;
        assert!(done > 0 && report.direct.count() > 0 && report.stored.count() > 0, "{shown}");
        let has_space = attack != Attack::Disk;
        let stored_refused = if has_space { 0 } else { report.stored.count() };
        let refused = (report.direct.refused, report.stored.refused);
        assert_eq!((refused, report.lost), ((0, stored_refused), 0), "{shown}");
        assert!(row.commits.is_some(), "{shown}");
        let is_limited = matches!(attack, Attack::Key | Attack::Address | Attack::Disk);
        assert!(!is_limited || row.refused > 0, "{shown}");
    }
}
