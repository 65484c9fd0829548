package daemon

// Bounds for the methods and fields of a type, so that each type stays easy to understand.

import (
	"go/types"
	"testing"
)

const (
	maxMethods = 25
	maxFields  = 20
)

// unbounded lists the types that may grow, because they are lists by nature. Each has the reason.
var unbounded = map[string]string{
	"api.Client":                   "one method for each endpoint",
	"api.Job":                      "a document: one field for each value that clients get",
	"api.Task":                     "a document, as api.Job is",
	"job.Spec":                     "one field for each thing that a user can ask for",
	"job.Task":                     "one field for each thing that people see of a task",
	"internal/contract.Record":     "a row of the ledger: one field for each value that must survive a restart",
	"internal/daemon.Config":       "one field for each setting of the daemon",
	"worker/runner/protocol.Start": "a message: everything that the runner must know about a task",
}

func TestSizes(t *testing.T) {
	s := loadTree(t)
	large := map[string]bool{}
	for dir := range s.sources {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.types.Scope().Names() {
			obj, ok := c.types.Scope().Lookup(name).(*types.TypeName)
			if !ok || c.generated[s.file(obj.Pos())] {
				continue
			}
			named, ok := obj.Type().(*types.Named)
			if !ok {
				continue
			}
			methods, fields := named.NumMethods(), 0
			if x, ok := named.Underlying().(*types.Struct); ok {
				fields = x.NumFields()
			}
			if methods <= maxMethods && fields <= maxFields {
				continue
			}
			full := dir + "." + name
			large[full] = true
			if unbounded[full] == "" {
				t.Errorf("%s has %d methods and %d fields: split it", full, methods, fields)
			}
		}
	}
	for full := range unbounded {
		if !large[full] {
			t.Errorf("%s is not large: remove it from the list", full)
		}
	}
}
