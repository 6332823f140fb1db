-- Version 2 of a month: messages are stored by many in one call. It adds functions only, and so waits for no table. A month
-- that version 1 made keeps its trigger, which counts messages by statement.

-- Stores messages one after the other: each is an element of every array. The codes: 0 is stored, 1 is a channel that is not
-- registered, 2 is outranked by the other id. With 3 more is to be done first (`store_with_care` in messages.rs).
CREATE OR REPLACE FUNCTION {s}.add_messages_{m}(
    us uuid[], ids uuid[], expiries bigint[], cs uuid[], topics text[], urgencies smallint[], accepted bigint[],
    ttls bigint[], codings smallint[], salts text[], sender_keys text[], payloads bytea[], receipts text[], sizes int[],
    user_messages bigint, user_bytes bigint, channel_messages bigint, channel_bytes bigint
) RETURNS TABLE (code int, other uuid) LANGUAGE plpgsql AS $$
DECLARE
    of_user record; of_channel record; there record;
    more_messages bigint; more_bytes bigint;
BEGIN
    FOR n IN 1..cardinality(us) LOOP
        code := 0; other := NULL; more_messages := 1; more_bytes := sizes[n];
        SELECT a.messages, a.bytes INTO of_user FROM {s}.agents_{m} a WHERE a.uaid = us[n] FOR UPDATE;
        SELECT c.messages, c.bytes INTO of_channel FROM {s}.channels_{m} c WHERE c.uaid = us[n] AND c.chid = cs[n];
        IF NOT FOUND THEN code := 1; RETURN NEXT; CONTINUE; END IF;
        IF topics[n] IS NOT NULL THEN
            SELECT o.id, o.size, o.receipt INTO there
                FROM {s}.messages_{m} o WHERE o.uaid = us[n] AND o.chid = cs[n] AND o.topic = topics[n];
            IF FOUND THEN
                IF there.id > ids[n] THEN code := 2; other := there.id; RETURN NEXT; CONTINUE; END IF;
                IF there.id = ids[n] THEN RETURN NEXT; CONTINUE; END IF;
                IF there.receipt IS NOT NULL THEN code := 3; RETURN NEXT; CONTINUE; END IF;
                more_messages := 0; more_bytes := more_bytes - there.size;
            END IF;
        END IF;
        IF more_messages > 0 AND (
                user_messages > 0 AND of_user.messages >= user_messages
                OR channel_messages > 0 AND of_channel.messages >= channel_messages)
            OR more_bytes > 0 AND (
                user_bytes > 0 AND of_user.bytes + more_bytes > user_bytes
                OR channel_bytes > 0 AND of_channel.bytes + more_bytes > channel_bytes)
        THEN code := 3; RETURN NEXT; CONTINUE; END IF;
        IF more_messages = 0 THEN
            DELETE FROM {s}.messages_{m} o WHERE o.uaid = us[n] AND o.id = there.id;
        END IF;
        INSERT INTO {s}.messages_{m} VALUES (
            us[n], ids[n], expiries[n], cs[n], topics[n], urgencies[n], accepted[n], ttls[n], codings[n], salts[n],
            sender_keys[n], payloads[n], 0, receipts[n], sizes[n])
            ON CONFLICT DO NOTHING;
        RETURN NEXT;
    END LOOP;
END $$;

-- What nodes of version 1 call.
CREATE OR REPLACE FUNCTION {s}.store_{m}(
    u uuid, i uuid, expiry bigint, c uuid, t text, urgent smallint, accepted bigint, lifetime bigint, coding smallint,
    salt text, sender_key text, payload bytea, receipt_of text, bytes_of int,
    user_messages bigint, user_bytes bigint, channel_messages bigint, channel_bytes bigint,
    OUT code int, OUT other uuid
) LANGUAGE sql AS $$
    SELECT code, other FROM {s}.add_messages_{m}(
        ARRAY[u], ARRAY[i], ARRAY[expiry], ARRAY[c], ARRAY[t], ARRAY[urgent], ARRAY[accepted], ARRAY[lifetime],
        ARRAY[coding], ARRAY[salt], ARRAY[sender_key], ARRAY[payload], ARRAY[receipt_of], ARRAY[bytes_of],
        user_messages, user_bytes, channel_messages, channel_bytes)
$$;
