package daemon

// Disk space for the data directory. While there is too little for new work, or files of the directory are gone, the host
// accepts no tasks. It tells schedulers why, so that they do not offer it tasks.

import (
	"context"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/worker/loop"
)

// roomEvery is how often the daemon checks the data directory.
const roomEvery = 2 * time.Second

// trouble is a problem of the data directory.
type trouble int

const (
	noTrouble trouble = iota
	noRoom
	filesGone
)

// roomWatch tells the worker when the data directory can no longer take new work, and when it can again.
type roomWatch struct {
	look func() (is trouble, why, advice string) // why and advice are for people
	tell func(why string)                        // called when a trouble begins, and with "" when it ends
	log  *slog.Logger
}

func watchRoom(s *store.Store, d *dataFiles, w *loop.Loop, log *slog.Logger) *roomWatch {
	return &roomWatch{log: log, tell: func(why string) { loop.TellRoom(w, why) }, look: func() (trouble, string, string) {
		if gone := d.look(); gone.any() {
			return filesGone, gone.String(), gone.advice()
		}
		if why := store.WhyNoRoom(s); why != "" {
			return noRoom, why, ""
		}
		return noTrouble, "", ""
	}}
}

// run checks the data directory until ctx ends. While a trouble lasts, run reports it once, with the figures of the first
// check. The log says what to do about files that are gone.
func (w *roomWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	was := noTrouble
	for {
		if is, why, advice := w.look(); is != was {
			switch {
			case is == filesGone:
				w.log.ErrorContext(ctx, "this host accepts no more tasks", "reason", why, "advice", advice)
			case was == filesGone:
				w.log.WarnContext(ctx, "the files of the data directory are there again")
			}
			was = is
			w.tell(why)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
