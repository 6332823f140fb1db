//! What a registration writes, over a WebSocket or for a bridge, and the `router_data` of a bridge's agent
//! (docs/sources.md#router-data-of-bridges).

use serde_json::{Value, json};
use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Month, NodeId, RouterRecord, RouterType, Time, Uaid,
};

use crate::record_row::RecordRow;
use crate::store::{BridgedRegistration, RegisterResult, Registration};

/// The part of a record that a registration replaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewRecord {
    pub uaid: Uaid,
    pub router_type: RouterType,
    /// None for a bridge.
    pub node: Option<NodeId>,
    pub connected_at: Time,
    pub last_connect: LastConnect,
    pub create_in: Option<Month>,
}

impl NewRecord {
    /// What the registration makes of a record, or of none.
    pub fn over(&self, there: Option<&RecordRow>) -> RegisterResult {
        let refusal = there.and_then(|there| self.refusal(there));
        refusal.unwrap_or_else(|| self.registered(there))
    }

    /// Why a record is not replaced, if it is not.
    pub fn refusal(&self, there: &RecordRow) -> Option<RegisterResult> {
        if !self.may_replace(there) {
            return Some(RegisterResult::UnknownAgent);
        }
        let is_superseded = there.connected_at >= self.connected_at;
        is_superseded.then_some(RegisterResult::Superseded(there.connected_at))
    }

    /// Whether the agent may register as the one of a record. A bridge may be changed for another one.
    fn may_replace(&self, there: &RecordRow) -> bool {
        match &self.router_type {
            RouterType::Bridge(_) => there.recipient.is_some(),
            router_type => there.router_type == router_type.as_str(),
        }
    }

    /// Whether a record is the one that this registration wrote.
    pub fn is_in(&self, there: &RecordRow) -> bool {
        (there.connected_at, &there.node) == (self.connected_at, &self.node)
            && there.recipient.as_ref() == self.router_type.recipient()
    }

    /// The result over a record that it replaces. The months of a record stay.
    pub fn registered(&self, before: Option<&RecordRow>) -> RegisterResult {
        let curmonth = before.and_then(|before| before.curmonth).or(self.create_in);
        let Some(curmonth) = curmonth else { return RegisterResult::UnknownAgent };
        let oldmonth = before.and_then(|before| before.oldmonth);
        let Self { uaid, router_type, node, connected_at, last_connect, .. } = self.clone();
        let record = RouterRecord {
            uaid,
            router_type,
            node,
            connected_at,
            last_connect,
            curmonth,
            oldmonth,
        };
        RegisterResult::Registered(record, before.and_then(RecordRow::binding))
    }
}

impl From<&Registration> for NewRecord {
    fn from(registration: &Registration) -> Self {
        let Registration { uaid, router_type, node, connected_at, last_connect, create_in } =
            registration.clone();
        Self { uaid, router_type, node: Some(node), connected_at, last_connect, create_in }
    }
}

impl From<BridgedRegistration> for NewRecord {
    fn from(registration: BridgedRegistration) -> Self {
        let BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in } =
            registration;
        let router_type = RouterType::Bridge(Box::new(recipient));
        Self { uaid, router_type, node: None, connected_at, last_connect, create_in }
    }
}

/// How the agent of a record is reached. None for a type that is not served, and if the `router_data` of a bridge is
/// missing or cannot be read.
pub fn router_type(name: &str, data: impl FnOnce() -> Option<Value>) -> Option<RouterType> {
    let bridge = || Some(RouterType::Bridge(Box::new(recipient(name, data)?)));
    RouterType::parse(name).or_else(bridge)
}

/// Whom a bridge reaches. None if the type is no bridge, and if the data are missing or cannot be read.
pub fn recipient(
    router_type: &str,
    data: impl FnOnce() -> Option<Value>,
) -> Option<BridgeRecipient> {
    decode(BridgeName::parse(router_type)?, &data()?)
}

/// The `router_data` of a recipient: texts only.
pub fn encode(recipient: &BridgeRecipient) -> Value {
    let BridgeRecipient { bridge, app, token, aps } = recipient;
    let mut data = json!({ "token": token, app_attribute(*bridge): app });
    if let Some(aps) = aps {
        data["aps"] = Value::from(&**aps);
    }
    data
}

/// Reads what autopush wrote too: GCM's records that became those of FCM have `creds.senderID`, and some have the
/// dictionary `aps` itself instead of its JSON.
fn decode(bridge: BridgeName, data: &Value) -> Option<BridgeRecipient> {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(Box::<str>::from)
    };
    let app = text(data.get(app_attribute(bridge)))
        .or_else(|| text(data.get("app_id")))
        .or_else(|| text(data.get("creds")?.get("senderID")))?;
    let aps = match data.get("aps") {
        Some(dictionary @ Value::Object(_)) => Some(dictionary.to_string().into()),
        aps => text(aps),
    };
    Some(BridgeRecipient { bridge, app, token: text(data.get("token"))?, aps })
}

/// The attribute with the application, as autopush names it.
pub fn app_attribute(bridge: BridgeName) -> &'static str {
    match bridge {
        BridgeName::Fcm => "app_id",
        BridgeName::Apns => "rel_channel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bridge: BridgeName, data: &str) -> Option<(String, String, Option<String>)> {
        let recipient = decode(bridge, &serde_json::from_str(data).unwrap())?;
        Some((recipient.app.into(), recipient.token.into(), recipient.aps.map(String::from)))
    }

    fn is(app: &str, token: &str, aps: Option<&str>) -> Option<(String, String, Option<String>)> {
        Some((app.to_owned(), token.to_owned(), aps.map(str::to_owned)))
    }

    #[test]
    fn every_form_of_router_data_that_autopush_wrote_is_read() {
        use BridgeName::{Apns, Fcm};
        for (bridge, data, expected) in [
            (Fcm, r#"{"token":"t","app_id":"a"}"#, is("a", "t", None)),
            (Fcm, r#"{"token":"t","creds":{"senderID":"a","auth":"x"}}"#, is("a", "t", None)),
            (Apns, r#"{"token":"t","rel_channel":"a"}"#, is("a", "t", None)),
            (
                Apns,
                r#"{"token":"t","rel_channel":"a","app_id":"b","aps":"{\"badge\":1}"}"#,
                is("a", "t", Some(r#"{"badge":1}"#)),
            ),
            (
                Apns,
                r#"{"token":"t","rel_channel":"a","aps":{"badge":1}}"#,
                is("a", "t", Some(r#"{"badge":1}"#)),
            ),
            (Fcm, r#"{"app_id":"a"}"#, None),
            (Fcm, r#"{"token":"","app_id":"a"}"#, None),
            (Fcm, r#"{"token":7,"app_id":"a"}"#, None),
            (Fcm, r#"{"token":"t"}"#, None),
            (Fcm, r#"["t","a"]"#, None),
        ] {
            assert_eq!(read(bridge, data), expected, "{data}");
        }
    }

    #[test]
    fn a_recipient_is_read_as_it_was_written() {
        for bridge in BridgeName::ALL {
            for aps in [None, Some(r#"{"badge":1}"#.into())] {
                let recipient =
                    BridgeRecipient { bridge, app: "app".into(), token: "token".into(), aps };
                assert!(decode(bridge, &encode(&recipient)) == Some(recipient));
            }
        }
    }
}
