//! The statements on records and on SimplePush's versions.

pub const READ_RECORD: &str = "
    SELECT uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data
    FROM main.router WHERE uaid = ?1";

/// The last parameter is whether a record that is there is replaced. It keeps the data of a recipient that this program
/// cannot read.
pub const WRITE_RECORD: &str = "
    INSERT INTO main.router AS r
        (uaid, router_type, node_id, connected_at, last_connect, curmonth, oldmonth, router_data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (uaid) DO UPDATE SET
        router_type = excluded.router_type,
        node_id = excluded.node_id,
        connected_at = excluded.connected_at,
        last_connect = excluded.last_connect,
        curmonth = excluded.curmonth,
        oldmonth = excluded.oldmonth,
        router_data = coalesce(excluded.router_data, r.router_data)
        WHERE ?9";

pub const DROP_RECORD: &str = "DELETE FROM main.router WHERE uaid = ?1 RETURNING 1";

pub const SAVE_NOTIFICATION: &str = "
    INSERT INTO main.notifications AS n (uaid, chid, version, data) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (uaid, chid) DO UPDATE SET version = excluded.version, data = excluded.data
        WHERE excluded.version > n.version
    RETURNING 1";

pub const DELETE_NOTIFICATION: &str = "
    DELETE FROM main.notifications
    WHERE uaid = ?1 AND chid = ?2 AND (?3 IS NULL OR version <= ?3) RETURNING 1";
