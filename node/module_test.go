package node

// The module as the tests of its plan see it: parsed and type-checked from source.

import (
	"errors"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// checked is one package of the module, without its tests.
type checked struct {
	files     []string        // the names of its files
	generated map[string]bool // those that a program wrote
	types     *types.Package
	info      types.Info
}

// sourceTree type-checks the packages of the module. Packages of other modules stay unknown, because the plan is about
// ours, and `go list` would be blind to changes that the test cache has to see.
type sourceTree struct {
	set      *token.FileSet
	standard types.Importer
	sources  map[string][]string
	known    map[string]*checked // by directory
}

// tree is the module, checked once for all tests of this package.
var tree = sync.OnceValue(func() *sourceTree {
	set := token.NewFileSet()
	build.Default.CgoEnabled = false // the standard library's Go files say enough
	return &sourceTree{set: set, standard: importer.ForCompiler(set, "source", nil), known: map[string]*checked{}}
})

// loadTree gives the module with its list of files.
func loadTree(t *testing.T) *sourceTree {
	s := tree()
	if s.sources == nil {
		s.sources = sources(t)
	}
	return s
}

// Import is for the type checker.
func (s *sourceTree) Import(path string) (*types.Package, error) {
	if dir, ours := strings.CutPrefix(path, module); ours {
		c, err := s.check(dir)
		if err != nil {
			return nil, err
		}
		return c.types, nil
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") || path == "C" {
		return nil, errors.New("not of this module")
	}
	return s.standard.Import(path)
}

// check resolves the names of the package in a directory. It returns an error if a file cannot be parsed.
func (s *sourceTree) check(dir string) (*checked, error) {
	if c := s.known[dir]; c != nil {
		return c, nil
	}
	c := &checked{files: slices.Sorted(slices.Values(s.sources[dir])), generated: map[string]bool{}}
	c.info = types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	for _, name := range c.files {
		f, err := parser.ParseFile(s.set, filepath.Join("..", dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.generated[name] = ast.IsGenerated(f)
		parsed = append(parsed, f)
	}
	conf := types.Config{Importer: s, Error: func(error) {}} // errors are about packages of other modules
	c.types, _ = conf.Check(module+dir, s.set, parsed, &c.info)
	s.known[dir] = c
	return c, nil
}

// file names the file of a position.
func (s *sourceTree) file(pos token.Pos) string { return filepath.Base(s.set.Position(pos).Filename) }

// arrow says that a file uses what another file of its package declares.
type arrow struct{ from, to string }

// arrows lists the files of a package that use each other, each pair with one name that is used. A method and a field
// belong to the file that declares them.
func (s *sourceTree) arrows(c *checked) map[arrow]string {
	found := map[arrow]string{}
	for id, obj := range c.info.Uses {
		if obj.Pkg() != c.types || !obj.Pos().IsValid() {
			continue
		}
		a := arrow{s.file(id.Pos()), s.file(obj.Pos())}
		if name, seen := found[a]; a.from != a.to && (!seen || obj.Name() < name) {
			found[a] = obj.Name()
		}
	}
	return found
}
