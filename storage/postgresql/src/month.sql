-- The tables of a month, and those functions that are as in version 1. Payloads are encrypted, which no compression makes
-- smaller. `expires_at` of an agent is a time before which none of its messages expires. Messages are added one by one, and
-- deleted by many.

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
    UPDATE {s}.agents_{m} SET messages = messages + 1, bytes = bytes + NEW.size,
            expires_at = least(expires_at, NEW.expires_at)
        WHERE uaid = NEW.uaid;
    UPDATE {s}.channels_{m} SET messages = messages + 1, bytes = bytes + NEW.size
        WHERE uaid = NEW.uaid AND chid = NEW.chid;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS count_added ON {s}.messages_{m};
CREATE TRIGGER count_added AFTER INSERT ON {s}.messages_{m}
    FOR EACH ROW EXECUTE FUNCTION {s}.count_added_{m}();

CREATE OR REPLACE FUNCTION {s}.count_removed_{m}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {s}.agents_{m} a SET messages = a.messages - n.messages, bytes = a.bytes - n.bytes
        FROM (SELECT uaid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid) n
        WHERE a.uaid = n.uaid;
    UPDATE {s}.channels_{m} c SET messages = c.messages - n.messages, bytes = c.bytes - n.bytes
        FROM (SELECT uaid, chid, count(*) messages, sum(size) bytes FROM removed GROUP BY uaid, chid) n
        WHERE c.uaid = n.uaid AND c.chid = n.chid;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS count_removed ON {s}.messages_{m};
CREATE TRIGGER count_removed AFTER DELETE ON {s}.messages_{m}
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {s}.count_removed_{m}();

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
