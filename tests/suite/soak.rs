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
    for attack in [Attack::Fill, Attack::Upgrades, Attack::Records, Attack::Carry, Attack::Slow] {
        let row = measure(&plan, attack).await;
        let report = &row.report;
        let shown = format!("{}\n{row}", Row::HEAD);
        assert!(row.done > 0 && report.direct.count() > 0 && report.stored.count() > 0, "{shown}");
        let refused = (report.direct.refused, report.stored.refused);
        assert_eq!((refused, report.lost), ((0, 0), 0), "{shown}");
    }
}
