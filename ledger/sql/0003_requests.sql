-- A run is found by the text of the protocol's id (the value of a JSON string,
-- anything else as it is written) and by the Stop that ended it. Both are in the
-- row already, so these columns take no room but in their indexes.

ALTER TABLE runs ADD COLUMN request TEXT AS (
    nullif(CASE
        WHEN substr(address, 1, 1) = '"' AND json_valid(address) THEN json_extract(address, '$')
        ELSE address
    END, '')
);
ALTER TABLE runs ADD COLUMN stop TEXT AS (
    CASE WHEN json_valid(cancellation) THEN json_extract(cancellation, '$.stop') END
);

-- Small ids such as 1 are in use in every session: whoever asks for their own
-- must not read through everybody's.
CREATE INDEX runs_request ON runs (request) WHERE request IS NOT NULL;
CREATE INDEX runs_owner_request ON runs (owner, request) WHERE request IS NOT NULL;
CREATE INDEX runs_owner_cancelled ON runs (owner) WHERE cancellation IS NOT NULL;
CREATE INDEX runs_stop ON runs (stop) WHERE stop IS NOT NULL;
