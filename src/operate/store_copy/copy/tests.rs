use super::*;
use crate::command::Completion;
use crate::command::fixture::{Fixture, NOW};

/// Rows of more than one page of the store.
const ROWS: u16 = 30;

async fn rows(store: &dyn StoreAdmin) -> usize {
    let (mut rows, mut after) = (0, None);
    loop {
        let page = store.read_rows(Table::Router, after).await.unwrap();
        rows += page.rows.len();
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

/// The stores of fixtures have empty pages and pages of one row.
#[tokio::test]
async fn rows_of_all_pages_are_copied_into_a_store_that_has_none_on_any_page() {
    let [source, mut target] = [Fixture::with(&["2026_11"]).await, Fixture::with(&[]).await];
    source.users_of(0..ROWS, NOW).await;
    for number in 0..ROWS {
        source.channel_of(number, "2026_11").await;
    }
    let dir = target.dir.path().to_owned();
    Keys::load_or_generate(&dir).unwrap();
    target.change_settings(|settings| settings.data_dir = dir);
    let mut parts = Extensions::new();
    parts.insert(Source(StoreKind::Embedded, Arc::clone(&source.context.store)));
    target.context.parts = parts.into();
    let copy = StoreCopy {
        to: StoreKind::Embedded,
        from: None,
        server_stopped: true,
        verify_only: false,
        json: false,
    };
    assert_eq!(rows(&*target.context.store).await, 0);
    let (outputs, end) = target.ask(copy.clone()).await;
    assert_eq!(end, Completion::Done, "{outputs:?}");
    let report = format!("{outputs:?}");
    assert!(report.contains("both stores have the same rows"), "{report}");
    assert_eq!(rows(&*target.context.store).await, usize::from(ROWS));
    target.refused(copy, "the target, ").await;
}
