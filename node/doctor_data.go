package node

// Doctor: whether the data directory of a running daemon is still there.

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/api"
)

// dataFact looks for the files of the data directory. A daemon whose directory was deleted runs on with its open files: it
// notices that only by what it cannot write.
func dataFact(d *dataFiles) api.Fact {
	f := api.Fact{Name: "data", State: api.FactOK, Detail: d.dir}
	_, err := os.Stat(filepath.Join(d.dir, "identity.key"))
	switch gone := d.look(); {
	case len(gone.own) > 0:
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s was deleted, moved or replaced while the daemon runs: what happens now is not on disk", d.dir)
		f.Advice = "accept no more work here (muster node drain), let running tasks end, and stop the daemon; then put the directory back, or start anew with an empty one as a new host"
	case gone.any():
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s: %s", d.dir, gone)
		f.Advice = "let the tasks that run here end, or cancel them, and restart the daemon, which makes the files again; it does not find tasks that still run"
	case err != nil:
		f.State, f.Detail = api.FactFail, err.Error()
		f.Advice = "make the directory readable for the daemon"
	}
	return f
}
