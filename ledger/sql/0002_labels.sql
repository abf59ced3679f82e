-- Labels get an index of their own, so that the newest runs with a label are
-- found without reading the others.

CREATE TABLE labels (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    run   BLOB NOT NULL,
    PRIMARY KEY (key, value, run)
) WITHOUT ROWID;

INSERT INTO labels (key, value, run)
SELECT j.key, j.value, runs.id FROM runs, json_each(runs.labels) j
WHERE runs.labels <> '{}';

CREATE TRIGGER labels_go_with_runs AFTER DELETE ON runs WHEN OLD.labels <> '{}'
BEGIN
    DELETE FROM labels
    WHERE (key, value, run) IN (SELECT j.key, j.value, OLD.id FROM json_each(OLD.labels) j);
END;
