package table

// Rows by a template, as Docker's --format takes one.

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"
	"text/template/parse"
)

// Template writes each item as a template says.
type Template[T any] struct {
	columns Columns[T]
	text    *template.Template
}

// Template parses a template such as {{.ID}} {{.State}}. Its fields are the columns, as texts; \t and \n mean a tab and a
// new line.
func (all Columns[T]) Template(text string) (*Template[T], error) {
	text = strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(text)
	parsed, err := template.New("format").Option("missingkey=error").Funcs(template.FuncMap{
		"json":  func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
		"lower": strings.ToLower, "upper": strings.ToUpper,
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s; want a template such as '{{.%s}}'", strings.TrimPrefix(err.Error(), "template: format:"), all[0].Name)
	}
	t := &Template[T]{columns: all, text: parsed}
	if text == "" {
		return nil, fmt.Errorf("want a template such as '{{.%s}}'", all[0].Name)
	}
	return t, t.check(parsed.Root)
}

// check gives each field of a template the name that its column has in the data.
func (t *Template[T]) check(n parse.Node) error {
	var within []parse.Node
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			within = n.Nodes
		}
	case *parse.ActionNode:
		within = []parse.Node{n.Pipe}
	case *parse.IfNode:
		within = []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			within = append(within, c)
		}
	case *parse.CommandNode:
		within = n.Args
	case *parse.FieldNode:
		return t.rename(n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return t.rename(n.Ident[1:])
		}
	}
	for _, x := range within {
		if err := t.check(x); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template[T]) rename(path []string) error {
	if len(path) == 0 {
		return nil
	}
	c, err := t.columns.find(path[0])
	if err == nil {
		path[0] = c.Name
	}
	return err
}

// Rows writes the items, each with a new line behind it.
func (t *Template[T]) Rows(out io.Writer, items []T) error {
	for _, item := range items {
		cells := make(map[string]string, len(t.columns))
		for _, c := range t.columns {
			cells[c.Name] = Clean(c.Cell(item))
		}
		if err := t.text.Execute(out, cells); err != nil {
			return err
		}
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
	}
	return nil
}
