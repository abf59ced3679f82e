-- Runs and receipts. Times are nanoseconds since 1970 (UTC), 0 for none. Run
-- ids sort by time, so the primary key is also the order of every list; each
-- index below ends in it, which makes "newest first" a walk and never a sort.

CREATE TABLE runs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    parent       BLOB,
    kind         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    server       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    address      TEXT    NOT NULL,
    labels       TEXT    NOT NULL, -- a JSON object
    outcome      TEXT    NOT NULL,
    work         TEXT    NOT NULL,
    over         INTEGER NOT NULL, -- nothing more is expected of the run
    started      INTEGER NOT NULL,
    ended        INTEGER NOT NULL,
    deadline     INTEGER NOT NULL,
    cancellation TEXT,             -- a JSON object
    stopped_by   TEXT,
    verdict      TEXT    NOT NULL,
    held         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    node         TEXT    NOT NULL,
    note         TEXT    NOT NULL  -- what the ledger itself has to say
) WITHOUT ROWID;

CREATE INDEX runs_outcome ON runs (outcome);
CREATE INDEX runs_owner ON runs (owner);
CREATE INDEX runs_server ON runs (server);
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_open ON runs (id) WHERE over = 0;
CREATE INDEX runs_cancelled ON runs (id) WHERE cancellation IS NOT NULL;
CREATE INDEX runs_stopped_by ON runs (stopped_by) WHERE stopped_by IS NOT NULL;

-- Every committed state of a receipt is a row of its own; the highest revision
-- is the receipt.
CREATE TABLE receipts (
    seq      INTEGER PRIMARY KEY,
    run      BLOB    NOT NULL,
    revision INTEGER NOT NULL,
    recorded INTEGER NOT NULL,
    verdict  TEXT    NOT NULL,
    size     INTEGER NOT NULL, -- steps, dropped ones and late answers: never falls
    body     TEXT    NOT NULL, -- the receipt as JSON
    UNIQUE (run, revision)
);

-- Append-only is held by the file itself, not by the code that happens to
-- write it: a receipt never changes, an outcome changes once.
CREATE TRIGGER receipts_never_change BEFORE UPDATE ON receipts
BEGIN
    SELECT RAISE(ABORT, 'receipts are append-only');
END;

CREATE TRIGGER outcome_changes_once BEFORE UPDATE OF outcome ON runs
WHEN OLD.outcome <> 'pending' AND NEW.outcome <> OLD.outcome
BEGIN
    SELECT RAISE(ABORT, 'an outcome changes once');
END;

CREATE TRIGGER runs_keep_their_name BEFORE UPDATE OF id, kind, name, owner, started ON runs
WHEN NEW.id <> OLD.id OR NEW.kind <> OLD.kind OR NEW.name <> OLD.name OR NEW.owner <> OLD.owner OR NEW.started <> OLD.started
BEGIN
    SELECT RAISE(ABORT, 'a run keeps its id, kind, name, owner and start');
END;

CREATE TRIGGER receipts_go_with_runs AFTER DELETE ON runs
BEGIN
    DELETE FROM receipts WHERE run = OLD.id;
END;
