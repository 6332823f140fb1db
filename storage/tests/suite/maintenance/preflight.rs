//! Trying out a store.

use state_machine::feed::{FeedKey, FeedName, FeedValue};
use storage::Notification;
use storage::maintenance::{PREFLIGHT_UAID, PreflightCheck, RecordsByMonth};

use crate::maintenance::world::{World, chid, month};

pub(crate) async fn a_good_store_passes_and_is_left_as_it_was(world: World) {
    let world = world.with_months(&["2026_11", "2026_12"]).await;
    let notification = Notification { chid: chid(1), version: 1, data: None };
    world.save_notification(PREFLIGHT_UAID, notification.clone()).await.unwrap();
    let (feed, key) = (FeedName::parse("preflight").unwrap(), FeedKey::parse("preflight").unwrap());
    let value = FeedValue::parse("kept").unwrap();
    world.ensure_feeds().await.unwrap();
    world.write_key(feed, key, value, 1).await.unwrap();
    let feeds = world.feeds(None, 10).await.unwrap();
    let checks = world.preflight(["2026_11", "2026_12"].map(month).into()).await.unwrap();
    let failed: Vec<&PreflightCheck> =
        checks.iter().filter(|check| check.outcome.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    for part in ["router", "2026_11", "2026_12"] {
        assert!(checks.iter().any(|check| check.what.contains(part)), "{part}: {checks:?}");
    }
    assert_eq!(world.record(PREFLIGHT_UAID).await, Ok(None));
    assert_eq!(world.records_by_month(None).await, Ok(RecordsByMonth::default()));
    for name in ["2026_11", "2026_12"] {
        assert_eq!(world.channels(PREFLIGHT_UAID, month(name)).await, Ok(None));
        assert_eq!(world.waiting(PREFLIGHT_UAID, name).await, []);
    }
    let left = world.fetch_notifications(PREFLIGHT_UAID, None, 10).await;
    assert_eq!(left, Ok(vec![notification]), "what was there before is not the trial's");
    assert_eq!(world.feeds(None, 10).await, Ok(feeds));
}
