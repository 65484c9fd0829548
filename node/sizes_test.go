package node

// Bounds on the size of types, so that each can be understood as a whole.

import (
	"go/types"
	"testing"
)

const (
	maxMethods = 25
	maxFields  = 20
)

// lists holds types that may be larger because they are lists by nature, each with the reason. They may grow.
var lists = map[string]string{
	"api.Client":                   "one method for each endpoint",
	"job.Spec":                     "one field for each thing that a user can ask for",
	"lease.Record":                 "a row of the ledger: what has to survive a restart, field by field",
	"node.Config":                  "one field for each setting of the daemon",
	"worker/runner/protocol.Start": "a message: all that the runner has to know of a task",
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
			if lists[full] == "" {
				t.Errorf("%s has %d methods and %d fields: it is too large, so split it", full, methods, fields)
			}
		}
	}
	for full := range lists {
		if !large[full] {
			t.Errorf("%s is not large: remove it from lists", full)
		}
	}
}
