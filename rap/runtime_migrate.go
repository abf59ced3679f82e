package rap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belayhq/belay"
)

// MigrateError is how a server refused to migrate.
type MigrateError struct {
	Server string
	Status int
	Text   string // the server's words, bounded; untrusted
}

func (e *MigrateError) Error() string {
	text := fmt.Sprintf("tool server %q has not migrated: %v", e.Server, statusError(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// ErrNoMigration says that a server keeps no state that could be migrated.
var ErrNoMigration = errors.New("the tool server needs no migration")

// migrateWait bounds a migration: the server answers only when all state has arrived.
const migrateWait = 10 * time.Minute

// maxMigrateText bounds the words of a refusal.
const maxMigrateText = 4 << 10

// Migrate has every loaded server that says it needs it move the session's state to
// the address that destination names for it (RAP-89), one after the other; servers
// for which it is "" are left out. It ends at the first error, which is a
// *[MigrateError] or wraps [belay.ErrUnreachable]: the session should then stay where
// it is.
func (th *Thread) Migrate(ctx context.Context, destination func(server string) string) error {
	servers, err := th.servers()
	if err != nil {
		return err
	}
	for _, s := range servers {
		m := th.Manifest(s.Name)
		if m == nil || !m.NeedsMigration {
			continue
		}
		if to := destination(s.Name); to != "" {
			if err := th.rt.migrate(ctx, s, Migration{SessionID: th.id, DestinationURL: to}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (rt *Runtime) migrate(ctx context.Context, s *server, m Migration) error {
	body, err := m.Append(nil)
	if err != nil {
		return err
	}
	base, _, err := s.up(ctx)
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeoutCause(ctx, migrateWait, slowError(migrateWait))
	defer end()
	resp, err := s.link.do(ctx, http.MethodPost, base.At(PathMigrate), body)
	if err != nil {
		return fmt.Errorf("%w: tool server %q: %w", belay.ErrUnreachable, s.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMigrateText))
	e := &MigrateError{Server: s.Name, Status: resp.StatusCode}
	if utf8.Valid(text) {
		e.Text = strings.TrimSpace(belay.CleanReason(string(text)))
	}
	return e
}
