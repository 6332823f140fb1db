-- The tables that are no month's, in version 1. Texts of feeds are compared by their bytes, as the names of keys are.

CREATE TABLE IF NOT EXISTS {s}.state (
    name text PRIMARY KEY,
    number bigint NOT NULL DEFAULT 0,
    marks text[] NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS {s}.health (session int PRIMARY KEY, checks bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.router (
    uaid uuid PRIMARY KEY,
    router_type text NOT NULL,
    node_id text,
    connected_at bigint NOT NULL,
    last_connect bigint NOT NULL,
    curmonth text NOT NULL,
    oldmonth text,
    router_data text
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS router_by_last_connect ON {s}.router (last_connect, uaid);
CREATE TABLE IF NOT EXISTS {s}.notifications (
    uaid uuid NOT NULL,
    chid uuid NOT NULL,
    version bytea NOT NULL,
    data bytea,
    PRIMARY KEY (uaid, chid)
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS {s}.sequences (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL,
    version bigint NOT NULL,
    keys bigint NOT NULL,
    horizon bigint NOT NULL DEFAULT 0,
    forgotten bigint NOT NULL DEFAULT 0,
    mark bigint,
    marked_at bigint
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.feed_keys (
    feed text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    feed_sync_id bigint,
    value bytea,
    PRIMARY KEY (feed, key)
);
CREATE UNIQUE INDEX IF NOT EXISTS feed_keys_by_number ON {s}.feed_keys (feed, feed_sync_id)
    WHERE feed_sync_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS feed_keys_pending ON {s}.feed_keys (feed, key) WHERE feed_sync_id IS NULL;
CREATE TABLE IF NOT EXISTS {s}.receipts_expected (
    feed text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    deadline bigint NOT NULL,
    PRIMARY KEY (feed, key)
);
CREATE INDEX IF NOT EXISTS receipts_expected_by_deadline ON {s}.receipts_expected (deadline);
INSERT INTO {s}.state (name, number) VALUES ('schema', 1), ('id_floor', 0), ('keys', 0)
    ON CONFLICT DO NOTHING;
