-- The tables and functions of a month, in version 1. Payloads are encrypted, which no compression makes smaller.
-- `expires_at` of an agent is a time before which none of its messages expires.
--
-- The codes of `store`: 0 is stored, 1 is a channel that is not registered, 2 is outranked by the other id. With 3 more is to
-- be done first (`store_with_care` in messages.rs).

CREATE TABLE IF NOT EXISTS {s}.agents_{m} (
    uaid uuid PRIMARY KEY,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.channels_{m} (
    uaid uuid NOT NULL,
    chid uuid NOT NULL,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (uaid, chid)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.messages_{m} (
    uaid uuid NOT NULL,
    id uuid NOT NULL,
    expires_at bigint NOT NULL,
    chid uuid NOT NULL,
    topic text,
    urgency smallint NOT NULL,
    accepted_at bigint NOT NULL,
    ttl bigint NOT NULL,
    encoding smallint,
    encryption text,
    crypto_key text,
    data bytea,
    offers int NOT NULL,
    receipt text,
    size int NOT NULL,
    PRIMARY KEY (uaid, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE {s}.messages_{m} ALTER data SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX IF NOT EXISTS messages_{m}_by_topic ON {s}.messages_{m} (uaid, chid, topic)
    WHERE topic IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_{m}_by_expiry ON {s}.messages_{m} (expires_at);

CREATE OR REPLACE FUNCTION {s}.count_added_{m}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {s}.agents_{m} a
        SET messages = a.messages + n.messages, bytes = a.bytes + n.bytes,
            expires_at = least(a.expires_at, n.expires_at)
        FROM (SELECT uaid, count(*) messages, sum(size) bytes, min(expires_at) expires_at FROM added GROUP BY uaid) n
        WHERE a.uaid = n.uaid;
    UPDATE {s}.channels_{m} c SET messages = c.messages + n.messages, bytes = c.bytes + n.bytes
        FROM (SELECT uaid, chid, count(*) messages, sum(size) bytes FROM added GROUP BY uaid, chid) n
        WHERE c.uaid = n.uaid AND c.chid = n.chid;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION {s}.count_removed_{m}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {s}.agents_{m} a SET messages = a.messages - n.messages, bytes = a.bytes - n.bytes
        FROM (SELECT uaid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid) n
        WHERE a.uaid = n.uaid;
    UPDATE {s}.channels_{m} c SET messages = c.messages - n.messages, bytes = c.bytes - n.bytes
        FROM (SELECT uaid, chid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid, chid) n
        WHERE c.uaid = n.uaid AND c.chid = n.chid;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS count_added ON {s}.messages_{m};
CREATE TRIGGER count_added AFTER INSERT ON {s}.messages_{m}
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {s}.count_added_{m}();
DROP TRIGGER IF EXISTS count_removed ON {s}.messages_{m};
CREATE TRIGGER count_removed AFTER DELETE ON {s}.messages_{m}
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {s}.count_removed_{m}();

CREATE OR REPLACE FUNCTION {s}.store_{m}(
    u uuid, i uuid, expiry bigint, c uuid, t text, urgent smallint, accepted bigint, lifetime bigint, coding smallint,
    salt text, sender_key text, payload bytea, receipt_of text, bytes_of int,
    user_messages bigint, user_bytes bigint, channel_messages bigint, channel_bytes bigint,
    OUT code int, OUT other uuid
) LANGUAGE plpgsql AS $$
DECLARE
    of_user record; of_channel record; there record;
    more_messages bigint := 1; more_bytes bigint := bytes_of;
BEGIN
    SELECT messages, bytes INTO of_user FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    SELECT messages, bytes INTO of_channel FROM {s}.channels_{m} WHERE uaid = u AND chid = c;
    IF NOT FOUND THEN code := 1; RETURN; END IF;
    IF t IS NOT NULL THEN
        SELECT id, size, receipt INTO there FROM {s}.messages_{m} WHERE uaid = u AND chid = c AND topic = t;
        IF FOUND THEN
            IF there.id > i THEN code := 2; other := there.id; RETURN; END IF;
            IF there.id = i THEN code := 0; RETURN; END IF;
            IF there.receipt IS NOT NULL THEN code := 3; RETURN; END IF;
            more_messages := 0; more_bytes := bytes_of - there.size;
        END IF;
    END IF;
    IF more_messages > 0 AND (
            user_messages > 0 AND of_user.messages >= user_messages
            OR channel_messages > 0 AND of_channel.messages >= channel_messages)
        OR more_bytes > 0 AND (
            user_bytes > 0 AND of_user.bytes + more_bytes > user_bytes
            OR channel_bytes > 0 AND of_channel.bytes + more_bytes > channel_bytes)
    THEN code := 3; RETURN; END IF;
    IF more_messages = 0 THEN
        DELETE FROM {s}.messages_{m} WHERE uaid = u AND id = there.id;
    END IF;
    INSERT INTO {s}.messages_{m} VALUES (
        u, i, expiry, c, t, urgent, accepted, lifetime, coding, salt, sender_key, payload, 0, receipt_of, bytes_of)
        ON CONFLICT DO NOTHING;
    code := 0;
END $$;
CREATE OR REPLACE FUNCTION {s}.delete_{m}(u uuid, ids uuid[], chids uuid[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE deleted bigint;
BEGIN
    PERFORM 1 FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    DELETE FROM {s}.messages_{m} d USING unnest(ids, chids) AS gone(id, chid)
        WHERE d.uaid = u AND d.id = gone.id AND d.chid = gone.chid;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;
CREATE OR REPLACE FUNCTION {s}.add_channels_{m}(u uuid, chids uuid[], if_new boolean) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN
    INSERT INTO {s}.agents_{m}
        SELECT u, count(*), coalesce(sum(size), 0), coalesce(min(expires_at), 9223372036854775807)
        FROM {s}.messages_{m} WHERE uaid = u
        ON CONFLICT DO NOTHING;
    IF if_new AND NOT FOUND THEN RETURN; END IF;
    PERFORM 1 FROM {s}.agents_{m} WHERE uaid = u FOR UPDATE;
    INSERT INTO {s}.channels_{m}
        SELECT u, c,
            (SELECT count(*) FROM {s}.messages_{m} WHERE uaid = u AND chid = c),
            (SELECT coalesce(sum(size), 0) FROM {s}.messages_{m} WHERE uaid = u AND chid = c)
        FROM unnest(chids) c
        ON CONFLICT DO NOTHING;
END $$;
