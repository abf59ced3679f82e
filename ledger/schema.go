package ledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver
)

// The numbered files of sql are the schema: file n takes a ledger from version
// n-1 to n, in one transaction. A file that was released never changes.
//
//go:embed sql/*.sql
var migrations embed.FS

// applicationID marks a SQLite file as a ledger ("BLGR").
const applicationID = 0x424c4752

// checkWhole is up to which size a file is checked page by page when it is opened.
const checkWhole = 64 << 20

// dial makes a pool of connections to the file; nothing is opened yet.
func dial(path string, how url.Values, pragmas ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	abs = filepath.ToSlash(abs)
	if !strings.HasPrefix(abs, "/") {
		abs = "/" + abs // C:/...
	}
	how["_pragma"] = pragmas
	db, err := sql.Open("sqlite", "file://"+(&url.URL{Path: abs}).EscapedPath()+"?"+how.Encode())
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return db, nil
}

func dialWriter(path string) (*sql.DB, error) {
	db, err := dial(path, url.Values{},
		"busy_timeout(2000)",
		"auto_vacuum(2)", // incremental; must come before the first table
		"journal_mode(WAL)",
		"synchronous(FULL)", // a commit is synced
		"secure_delete(ON)", // erased means overwritten
		"journal_size_limit(16777216)",
		"wal_autocheckpoint(2000)",
		"temp_store(MEMORY)", // nothing of the ledger goes to other places
		"trusted_schema(OFF)",
	)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

var readPragmas = []string{"busy_timeout(2000)", "query_only(ON)", "temp_store(MEMORY)", "trusted_schema(OFF)"}

func dialReaders(path string) (*sql.DB, error) {
	db, err := dial(path, url.Values{"mode": {"ro"}}, readPragmas...)
	if err == nil {
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
	}
	return db, err
}

// dialReader is for one look. still: nobody writes the file, so that no locks are
// taken and nothing is put beside it.
func dialReader(path string, still bool) (*sql.DB, error) {
	how := url.Values{"mode": {"ro"}}
	if still {
		how.Set("immutable", "1")
	}
	db, err := dial(path, how, readPragmas...)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// sniff looks at the first bytes, before SQLite does: what is not SQLite's and
// not empty is not ours to write to.
func sniff(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	defer f.Close()
	head := make([]byte, 16)
	switch n, _ := f.Read(head); {
	case n == 0:
		if wal, err := os.Stat(path + "-wal"); err == nil && wal.Size() > 0 {
			return damage(path, "it is empty, but there is a log of changes beside it")
		}
	case string(head[:n]) != "SQLite format 3\x00":
		return damage(path, "it is not a SQLite file")
	}
	return nil
}

// examine looks at a file with a connection that cannot change it. What is not a
// sound ledger stays as it is, not even its journal mode is touched.
func examine(ctx context.Context, path string) (version int, err error) {
	if err := sniff(path); err != nil {
		return 0, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return 0, nil
	}
	db, err := dialReaders(path)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, sick(path, err)
	}
	defer conn.Close()
	return inspect(ctx, conn, path)
}

// inspect refuses a file that is not a sound ledger, and returns its version; 0
// for a new one.
func inspect(ctx context.Context, db querier, path string) (version int, err error) {
	var app, tables int
	for pragma, into := range map[string]*int{
		"PRAGMA application_id": &app, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := db.QueryRowContext(ctx, pragma).Scan(into); err != nil {
			return 0, sick(path, err)
		}
	}
	switch newest := len(steps()); {
	case tables == 0 && version == 0 && app == 0:
		return 0, nil
	case app != applicationID:
		return 0, damage(path, "it is a SQLite file of another program")
	case version > newest:
		return 0, fmt.Errorf("%w: %s has version %d, this Belay knows %d; start the newer one, or give another path", ErrNewer, path, version, newest)
	}
	if info, err := os.Stat(path); err == nil && info.Size() <= checkWhole {
		return version, check(ctx, db, path)
	}
	return version, nil
}

// sick is the error for a failed look at the file: damage is told from the rest.
func sick(path string, err error) error {
	if damaged(err) && !errors.Is(err, ErrDamaged) {
		return damage(path, err)
	}
	return fmt.Errorf("read the ledger %s: %w", path, err)
}

// check reads every page of the file.
func check(ctx context.Context, db querier, path string) error {
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return sick(path, err)
	}
	if verdict != "ok" {
		return damage(path, strings.ReplaceAll(verdict, "\n", "; "))
	}
	return nil
}

// querier is a connection, a transaction or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func steps() []string {
	names, err := fs.Glob(migrations, "sql/*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

// migrate brings the file from one version to another.
func migrate(ctx context.Context, db *sql.Conn, from, to int) error {
	for i, name := range steps() {
		if i < from || i >= to {
			continue
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return fmt.Errorf("bring the ledger to version %d: %w", i+1, err)
		}
		err = inTx(ctx, db, func() error {
			_, err := db.ExecContext(ctx, fmt.Sprintf("%s\nPRAGMA user_version = %d; PRAGMA application_id = %d;", text, i+1, applicationID))
			return err
		})
		if err != nil {
			return fmt.Errorf("bring the ledger to version %d (%s): %w", i+1, name, err)
		}
	}
	return nil
}

// inTx runs f in one transaction of the connection.
func inTx(ctx context.Context, db *sql.Conn, f func() error) error {
	if _, err := db.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		_, err = db.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		// Also when ctx has ended, else the next transaction could not begin. It
		// may be rolled back already, as for a full disk.
		_, _ = db.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}
