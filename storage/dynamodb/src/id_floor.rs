//! The floor of message ids, beside the fingerprints of the nodes' keys.

use state_machine::Time;
use storage::maintenance::ID_FLOOR_AHEAD_MAX;

use crate::attributes::{UAID, number, number_of, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};
use crate::key_fingerprints::KEYS;
use crate::record_update::RecordUpdate;

const ID_FLOOR: &str = "id_floor";

/// One request, of one capacity unit.
pub(crate) async fn read(client: &DynamoClient) -> Result<Time, CallError> {
    let key = Item::from([(UAID.to_owned(), text(KEYS))]);
    let item = client.get(&client.names.router, key).await?;
    Ok(Time(item.and_then(|item| number_of(&item, ID_FLOOR)).unwrap_or(0)))
}

pub(crate) async fn raise(client: &DynamoClient, floor: Time) -> Result<(), CallError> {
    let raise = RecordUpdate::of_key(KEYS.to_owned())
        .set(ID_FLOOR, number(floor.0))
        .only_if("attribute_not_exists(id_floor) OR id_floor < :id_floor OR id_floor > :ahead")
        .with(":ahead", number((floor + ID_FLOOR_AHEAD_MAX).0));
    // It is refused if the floor is there, or a higher one.
    raise.try_send(client).await.map(|_raised_or_not| ())
}
