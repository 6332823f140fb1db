//! Reads the broadcasts when a node starts.

use state_machine::broadcast::Broadcasts;
use state_machine::feed::{FeedName, FeedSyncId};
use state_machine::store::PageLimit;
use storage::{FeedTables, StoreError};

/// Reads all of them, page by page. A feed that does not exist has none.
pub(super) async fn load(
    store: &dyn FeedTables,
    limit: PageLimit,
) -> Result<Broadcasts, StoreError> {
    let mut all = Broadcasts::default();
    let mut after = FeedSyncId::NONE;
    while let Some(page) = store.fetch_feed(FeedName::broadcasts(), after, limit).await? {
        let is_last = page.cursor >= page.head || page.cursor <= after;
        after = page.cursor;
        all.apply(page);
        if is_last {
            break;
        }
    }
    Ok(all)
}
