package node

// Room on the disk of the data directory. While there is none for new work, or files of it are gone, the host accepts no tasks,
// and says why, so that no scheduler takes it for a host with room.

import (
	"cmp"
	"context"
	"time"

	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/worker"
)

// roomEvery is how often the daemon looks whether there is room.
const roomEvery = 2 * time.Second

// roomWatch tells the worker when the data directory has no room for new work any more, and when it has again.
type roomWatch struct {
	why  func() string    // why there is no room, for people; empty: there is
	tell func(why string) // is called when that begins and when it ends
}

func watchRoom(s *store.Store, d *dataFiles, w *worker.Loop) *roomWatch {
	return &roomWatch{why: func() string { return cmp.Or(store.WhyNoRoom(s), d.look().String()) }, tell: func(why string) { worker.TellRoom(w, why) }}
}

// run looks until ctx ends. The figures that it tells are those of the first look, so that others hear of a full disk
// once.
func (w *roomWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	short := false
	for {
		if why := w.why(); (why != "") != short {
			short = !short
			w.tell(why)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
