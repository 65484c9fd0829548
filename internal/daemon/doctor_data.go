package daemon

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
		f.Advice = gone.advice()
	case gone.any():
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s: %s", d.dir, gone)
		f.Advice = gone.advice()
	case err != nil:
		f.State, f.Detail = api.FactFail, err.Error()
		f.Advice = "make the directory readable for the daemon"
	}
	return f
}
