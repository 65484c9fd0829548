package daemon

// The module for the tests of its layout, parsed and type-checked from source.

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
	generated map[string]bool // the files that were generated
	parsed    []*ast.File
	types     *types.Package
	info      types.Info
}

// sourceTree type-checks the packages of the module. It does not load packages of other modules, because the layout is
// about this module. It does not use `go list`, because then the test cache would not notice changes of the sources.
type sourceTree struct {
	set      *token.FileSet
	standard types.Importer
	sources  map[string][]string
	known    map[string]*checked // by directory
}

// tree is the module, checked once for all tests of this package.
var tree = sync.OnceValue(func() *sourceTree {
	set := token.NewFileSet()
	build.Default.CgoEnabled = false // the standard library's pure Go files are enough
	return &sourceTree{set: set, standard: importer.ForCompiler(set, "source", nil), known: map[string]*checked{}}
})

// loadTree returns the module with its list of files.
func loadTree(t *testing.T) *sourceTree {
	s := tree()
	if s.sources == nil {
		s.sources = sources(t)
	}
	return s
}

// Import implements types.Importer.
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
		f, err := parser.ParseFile(s.set, filepath.Join("../..", dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.generated[name] = ast.IsGenerated(f)
		parsed = append(parsed, f)
	}
	conf := types.Config{Importer: s, Error: func(error) {}} // errors are about packages of other modules
	c.types, _ = conf.Check(module+dir, s.set, parsed, &c.info)
	c.parsed, s.known[dir] = parsed, c
	return c, nil
}

// file returns the name of the file of a position.
func (s *sourceTree) file(pos token.Pos) string { return filepath.Base(s.set.Position(pos).Filename) }

// dependency says that a file uses what another file of its package declares.
type dependency struct{ from, to string }

// dependencies returns the dependencies between the files of a package, each with one name that is used. A method and a
// field belong to the file that declares them.
func (s *sourceTree) dependencies(c *checked) map[dependency]string {
	found := map[dependency]string{}
	for id, obj := range c.info.Uses {
		if obj.Pkg() != c.types || !obj.Pos().IsValid() {
			continue
		}
		d := dependency{s.file(id.Pos()), s.file(obj.Pos())}
		if name, seen := found[d]; d.from != d.to && (!seen || obj.Name() < name) {
			found[d] = obj.Name()
		}
	}
	return found
}
