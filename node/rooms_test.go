package node

// The plan of the house inside its large packages: files in order, lower ones first, and no type on which everything is
// a method.

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms are the files of a package from the ground up: a file uses only what it defines itself or what stands before it.
var rooms = map[string]string{
	"worker": `
		clock timer driver bounds phase
		eased quota breaker quarantine event config turn
		fault environment capacity account device mps pause health
		attempt exit ledger session report queue arbitration renew attempts
		command reserve drain gate offers start
		core restore parts execute loop worker`,
	"scheduler": `
		scheduler timer event turn avoid phase queue search task waitlist
		entries history hosts assigned contact pending placement attempts offers dispatches plan reports
		explain views renew requests deaths records core sessions owner look step
		mailbox replies calls watch needs reader execute loop list verbs`,
}

// The bounds of a type, so that it has one thing to know.
const (
	maxMethods = 25
	maxFields  = 20
)

func TestRooms(t *testing.T) {
	for dir, order := range rooms {
		set, files, info := check(t, dir)
		place := map[string]int{}
		for i, name := range strings.Fields(order) {
			place[name+".go"] = i + 1
		}
		for name := range files {
			if place[name] == 0 {
				t.Errorf("%s/%s has no place in the plan", dir, name)
			}
		}
		arrows := map[string]bool{}
		for id, obj := range info.Uses {
			if obj.Pkg() == nil || obj.Pkg().Path() != dir || !obj.Pos().IsValid() {
				continue
			}
			from, to := filepath.Base(set.Position(id.Pos()).Filename), filepath.Base(set.Position(obj.Pos()).Filename)
			if arrow := from + " uses " + obj.Name() + " of " + to; place[from] < place[to] && !arrows[arrow] {
				arrows[arrow] = true
				t.Errorf("%s: %s: that arrow runs up", dir, arrow)
			}
		}
		sizes(t, dir, info)
	}
}

// sizes holds the types of a package to the bounds.
func sizes(t *testing.T, dir string, info *types.Info) {
	for _, obj := range info.Defs {
		name, ok := obj.(*types.TypeName)
		if !ok || name.Parent() != name.Pkg().Scope() {
			continue
		}
		named, ok := name.Type().(*types.Named)
		if !ok {
			continue
		}
		if n := named.NumMethods(); n > maxMethods {
			t.Errorf("%s.%s has %d methods", dir, name.Name(), n)
		}
		if s, ok := named.Underlying().(*types.Struct); ok && s.NumFields() > maxFields {
			t.Errorf("%s.%s has %d fields", dir, name.Name(), s.NumFields())
		}
	}
}

// check resolves the names of one package. What it imports is left out: only its own names matter.
func check(t *testing.T, dir string) (*token.FileSet, map[string]bool, *types.Info) {
	set := token.NewFileSet()
	names := map[string]bool{}
	var files []*ast.File
	for _, name := range slices.Sorted(slices.Values(sources(t)[dir])) {
		f, err := parser.ParseFile(set, filepath.Join("..", dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names[name] = true
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: nothing{}, Error: func(error) {}}
	_, _ = conf.Check(dir, set, files, info) // its errors are about what it imports
	return set, names, info
}

// nothing is an importer that knows no package.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("left out") }
