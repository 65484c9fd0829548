package node

// Doctor: whether the data directory of a running daemon is still there.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/api"
)

// dataFact looks for the key of this host in the data directory. A daemon whose directory was deleted runs on with its open
// files: it notices that only by what it cannot write.
func dataFact(dir string) api.Fact {
	f := api.Fact{Name: "data", State: api.FactOK, Detail: dir}
	_, err := os.Stat(filepath.Join(dir, "identity.key"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s was deleted, moved or replaced while the daemon runs: what happens now is not on disk", dir)
		f.Advice = "accept no more work here (muster node drain), let running tasks end, and stop the daemon; then put the directory back, or start anew with an empty one as a new host"
	case err != nil:
		f.State, f.Detail = api.FactFail, err.Error()
		f.Advice = "make the directory readable for the daemon"
	}
	return f
}
