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

// withHelpers lists the types that have more than maxMethods methods and functions of their package that take the type first,
// and how many there are. Such a function is a method under another name. The numbers may only be lowered.
var withHelpers = map[string]int{
	"cmd/muster/top.model":      33,
	"gpu.Pool":                  30,
	"internal/sim.World":        34,
	"internal/sim.host":         37,
	"internal/sim.owner":        38,
	"internal/store.Store":      26,
	"scheduler.Core":            32,
	"scheduler.dispatches":      33,
	"scheduler.pending":         28,
	"scheduler.requests":        29,
	"scheduler.task":            37,
	"scheduler.views":           29,
	"scheduler/fleet.Host":      38,
	"scheduler/fleet.Table":     30,
	"scheduler/journal.Journal": 28,
	"scheduler/loop.Loop":       31,
	"scheduler/state.Job":       64,
	"scheduler/state.Table":     27,
	"worker/loop.Loop":          27,
}

// TestSizesWithHelpers: no type gets around its bound of methods by functions that take it as their first parameter.
func TestSizesWithHelpers(t *testing.T) {
	s := loadTree(t)
	seen := map[string]bool{}
	for dir := range s.sources {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		helpers := map[*types.TypeName]int{}
		for _, name := range c.types.Scope().Names() {
			fn, ok := c.types.Scope().Lookup(name).(*types.Func)
			if !ok || fn.Signature().Params().Len() == 0 {
				continue
			}
			first := fn.Signature().Params().At(0).Type()
			if p, ok := first.(*types.Pointer); ok {
				first = p.Elem()
			}
			if n, ok := first.(*types.Named); ok && n.Obj().Pkg() == c.types {
				helpers[n.Obj()]++
			}
		}
		for obj, n := range helpers {
			named, _ := obj.Type().(*types.Named)
			if _, ok := named.Underlying().(*types.Struct); !ok || c.generated[s.file(obj.Pos())] {
				continue
			}
			full, all := dir+"."+obj.Name(), n+named.NumMethods()
			if all <= maxMethods || unbounded[full] != "" {
				continue
			}
			seen[full] = true
			switch want := withHelpers[full]; {
			case all > want:
				t.Errorf("%s has %d methods and functions that take it first, want at most %d: split it", full, all, max(want, maxMethods))
			case all < want:
				t.Errorf("%s has only %d methods and functions that take it first: lower the %d in the list", full, all, want)
			}
		}
	}
	for full := range withHelpers {
		if !seen[full] {
			t.Errorf("remove %s from the list", full)
		}
	}
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
