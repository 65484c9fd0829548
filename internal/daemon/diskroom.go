package daemon

// Room on the disk of the data directory. While there is none for new work, or files of it are gone, the host accepts no tasks,
// and says why, so that no scheduler takes it for a host with room.

import (
	"context"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/worker"
)

// roomEvery is how often the daemon looks whether there is room.
const roomEvery = 2 * time.Second

// trouble is what is wrong with a data directory.
type trouble int

const (
	noTrouble trouble = iota
	noRoom
	filesGone
)

// roomWatch tells the worker when the data directory takes no new work any more, and when it does again.
type roomWatch struct {
	look func() (is trouble, why, advice string) // why and advice are for people
	tell func(why string)                        // is called when a trouble begins and when it ends
	log  *slog.Logger
}

func watchRoom(s *store.Store, d *dataFiles, w *worker.Loop, log *slog.Logger) *roomWatch {
	return &roomWatch{log: log, tell: func(why string) { worker.TellRoom(w, why) }, look: func() (trouble, string, string) {
		if gone := d.look(); gone.any() {
			return filesGone, gone.String(), gone.advice()
		}
		if why := store.WhyNoRoom(s); why != "" {
			return noRoom, why, ""
		}
		return noTrouble, "", ""
	}}
}

// run looks until ctx ends. The figures that it tells are those of the first look, so that others hear of a full disk
// once. The log says what to do about files that are gone.
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
