//! What only a Redis has: messages and channels without a readable value.

use uuid::Uuid;

use super::autopush::{Autopush, Waiting};
use super::imports::{Installation, STOPPED};
use super::redis_database::RedisDatabase;
use crate::harness::unix_now_s;

#[actix_web::test]
async fn unreadable_messages_and_channels_are_counted_and_end_no_import() {
    let mut autopush = Autopush::<RedisDatabase>::start().await;
    let (now, channel) = (unix_now_s(), Uuid::new_v4());
    let uaid = autopush.user(&[channel]);
    autopush.message(uaid, &Waiting::new(channel, "waits", now - 10));
    for id in ["02:1:a", "02:2:b"] {
        autopush.database.add_unreadable_message(uaid, id, now);
    }
    autopush.database.add_unreadable_channel(uaid);
    let [installation, ..] = Installation::each(&autopush.crypto_key);
    let done = installation.import(&autopush.database, STOPPED).await;
    let expected = "imported 1 user (0 behind a bridge), 1 channel and 1 message\n\
                    skipped 1 channel unreadable\n\
                    skipped 2 messages unreadable\n";
    assert_eq!(done, expected);
}
