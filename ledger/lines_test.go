package ledger

import (
	"log/slog"

	"github.com/belayhq/belay/internal/faketool"
)

// lines collects a log.
type lines struct{ faketool.Text }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
