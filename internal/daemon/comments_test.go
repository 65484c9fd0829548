package daemon

// What comments call things.

import (
	"go/ast"
	"strings"
	"testing"
)

// A comment of a function that begins with the function's name spells it as the code does: a name that was exported once
// is not found by those who search for it.
func TestCommentsSpellTheNamesOfFunctions(t *testing.T) {
	s := loadTree(t)
	for dir := range s.sources {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range c.parsed {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Doc == nil {
					continue
				}
				first, _, _ := strings.Cut(strings.TrimPrefix(fn.Doc.List[0].Text, "// "), " ")
				if name := fn.Name.Name; strings.EqualFold(first, name) && first != name {
					t.Errorf("%s: the comment of %s begins with %s", s.file(fn.Pos()), name, first)
				}
			}
		}
	}
}
