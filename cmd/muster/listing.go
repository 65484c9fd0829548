package main

// Listings: the flags that all of them have, and their output in the form that the flags choose.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// listFlags returns the flags of every listing.
func listFlags(more ...cli.Flag) []cli.Flag {
	return shapeFlags(append(more, &cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Usage: "at most `N` rows, the first ones", DefaultText: "all"})...)
}

// shapeFlags returns those flags of a listing that say how its rows look.
func shapeFlags(more ...cli.Flag) []cli.Flag {
	return clientFlags(append(more,
		&cli.StringFlag{Name: "columns", Aliases: []string{"o"}, Usage: "print the columns `FIELDS`, such as id,name:20 with a width of 20; help lists all columns"},
		&cli.StringFlag{Name: "format", Usage: "print each row by `TEMPLATE`, such as '{{.ID}} {{.State}}'; or json or jsonl"},
		&cli.StringFlag{Name: "sort", Usage: "sort by the columns `FIELDS`; -FIELD and FIELD:desc reverse"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only ids", DisableDefaultText: true},
		&cli.BoolFlag{Name: "wide", Usage: "print more columns, and cut none on a terminal", DisableDefaultText: true},
		jsonFlag(),
		&cli.BoolFlag{Name: "jsonl", Usage: "print one JSON object per line", DisableDefaultText: true})...)
}

// view is how a listing of T is printed.
type view[T any] struct {
	streams

	all     func([]T) table.Columns[T] // the columns, for items that may have equal names
	form    string                     // one of the forms below
	columns string                     // that -o names
	level   table.Level                // of the columns, if -o names none
	format  string                     // the template
	sort    string
	limit   int // 0: none
}

// The forms of a listing.
const (
	formTable    = "table"
	formIDs      = "ids"
	formJSON     = "json"
	formJSONL    = "jsonl"
	formTemplate = "template"
)

// same returns columns that do not depend on the items.
func same[T any](columns table.Columns[T]) func([]T) table.Columns[T] {
	return func([]T) table.Columns[T] { return columns }
}

// viewOf reads the flags. It reports what is wrong with them before any daemon is asked.
func viewOf[T any](s streams, c *cli.Context, all func([]T) table.Columns[T]) (view[T], error) {
	v := view[T]{streams: s, all: all, form: formTable, sort: c.String("sort"), limit: c.Int("limit")}
	if c.Bool("wide") {
		v.level = table.Wide
	}
	if c.IsSet("limit") && v.limit < 1 {
		return v, usagef("--limit %d: must be at least 1", v.limit)
	}
	if err := v.choose(c); err != nil {
		return v, err
	}
	columns := all(nil)
	for _, flag := range []struct {
		name, value string
		check       func(string) error
	}{
		{"columns", v.columns, func(s string) error { _, err := columns.Pick(s); return err }},
		{"sort", v.sort, func(s string) error { _, err := columns.Sorter(s); return err }},
		{"format", v.format, func(s string) error { _, err := columns.Template(s); return err }},
	} {
		if !c.IsSet(flag.name) || flag.value == "" && c.String(flag.name) != "" { // it was json
			continue
		}
		if flag.value == "help" {
			fmt.Fprint(s.out, columns.Help())
			return v, exitError{code: exitDone}
		}
		if err := flag.check(flag.value); err != nil {
			return v, usagef("--%s: %w", flag.name, err)
		}
	}
	return v, nil
}

// choose finds the form that the flags name. There must be only one.
func (v *view[T]) choose(c *cli.Context) error {
	var given []string
	take := func(flag, form string) { given, v.form = append(given, flag), form }
	for _, f := range []struct{ flag, form string }{{"json", formJSON}, {"jsonl", formJSONL}, {"quiet", formIDs}} {
		if c.Bool(f.flag) {
			take("--"+f.flag, f.form)
		}
	}
	for _, flag := range []string{"columns", "format"} {
		switch text := c.String(flag); {
		case !c.IsSet(flag):
		case text == formJSON || text == formJSONL:
			take("--"+flag, text)
		case flag == "columns":
			take("--"+flag, formTable)
			v.columns = text
		default:
			take("--"+flag, formTemplate)
			v.format = text
		}
	}
	if len(given) > 1 {
		return usagef("%s: give one of them", strings.Join(given, " and "))
	}
	return nil
}

// print prints a whole listing.
func (v view[T]) print(l api.Listing[T]) error {
	p, err := v.printer(l.Items)
	if err != nil {
		return err
	}
	if _, err := p.add(l.Items); err != nil {
		return err
	}
	return p.end(l)
}

// printer returns a printer of items that come in pages. some are the items that are known already.
func (v view[T]) printer(some []T) (*printer[T], error) {
	all := v.all(some)
	p := &printer[T]{view: v, out: bufio.NewWriterSize(v.out, listBytes), left: v.limit}
	shown, err := v.shown(all)
	if err != nil {
		return nil, err
	}
	room := terminalWidth(v.out)
	if v.level == table.Wide {
		room = 0
	}
	p.rows = table.NewPrinter(p.out, shown, room).Rows
	switch v.form {
	case formIDs:
		p.rows = func(items []T) error { return printKeys(p.out, all, items) }
	case formJSONL:
		p.rows = func(items []T) error { return printLines(p.out, items) }
	case formTemplate:
		t, err := all.Template(v.format)
		if err != nil {
			return nil, err
		}
		p.rows = func(items []T) error { return t.Rows(p.out, items) }
	}
	if v.sort != "" {
		p.order, err = all.Sorter(v.sort)
	}
	return p, err
}

// shown returns the columns of the table.
func (v view[T]) shown(all table.Columns[T]) (table.Columns[T], error) {
	if v.columns == "" {
		return all.Shown(v.level), nil
	}
	return all.Pick(v.columns)
}

// listBytes is how much of a listing is written at a time.
const listBytes = 64 << 10

// printer prints the items of a listing, page by page.
type printer[T any] struct {
	view[T]

	out   *bufio.Writer
	rows  func([]T) error
	order func(a, b T) int // nil: as they come
	held  []T              // until all are known
	left  int              // of the limit
	began bool
}

// add prints a page of items, or keeps them until the end if the form needs all. It returns false when no more are wanted.
func (p *printer[T]) add(items []T) (more bool, err error) {
	if p.order != nil || p.form == formJSON {
		p.held = append(p.held, items...)
		return p.order != nil || p.limit == 0 || len(p.held) < p.limit, nil
	}
	if p.limit > 0 {
		items = items[:min(len(items), p.left)]
		p.left -= len(items)
	}
	return p.limit == 0 || p.left > 0, p.show(items)
}

func (p *printer[T]) show(items []T) error {
	p.began = true
	if err := p.rows(items); err != nil {
		return err
	}
	return p.out.Flush()
}

// end prints what is left of the listing, and names the nodes that did not answer.
func (p *printer[T]) end(l api.Listing[T]) error {
	held := p.first(p.held)
	switch {
	case p.form == formJSON:
		l.Items, l.Next = append([]T{}, held...), ""
		return p.printJSON(l)
	case p.order != nil || !p.began: // without items, a table has its header
		if err := p.show(held); err != nil {
			return err
		}
	}
	p.incomplete(l.Partial)
	return nil
}

// first returns the first items in the order of the listing, as many as the limit allows.
func (p *printer[T]) first(items []T) []T {
	if p.order != nil {
		slices.SortStableFunc(items, p.order)
	}
	if p.limit > 0 {
		items = items[:min(len(items), p.limit)]
	}
	return items
}

// incomplete prints the names of the nodes that did not answer.
func (s streams) incomplete(nodes []string) {
	if len(nodes) > 0 {
		fmt.Fprintf(s.err, "muster: incomplete: no answer from %s\n", printable(strings.Join(nodes, ", ")))
	}
}

func printKeys[T any](out io.Writer, columns table.Columns[T], items []T) error {
	for _, item := range items {
		if _, err := fmt.Fprintln(out, columns.Key(item)); err != nil {
			return err
		}
	}
	return nil
}

func printLines[T any](out io.Writer, items []T) error {
	enc := json.NewEncoder(out)
	for _, item := range items {
		if err := enc.Encode(item); err != nil {
			return err
		}
	}
	return nil
}

// usualWidth is assumed for a terminal that does not report its width.
const usualWidth = 80

// terminalWidth returns how many columns a line may have; 0 means that there is no terminal, and no bound.
func terminalWidth(out io.Writer) int {
	w, _ := terminalSize(out)
	return w
}

// terminalSize returns the columns and lines of a terminal, or zeros if there is none.
func terminalSize(out io.Writer) (columns, lines int) {
	if s, ok := out.(interface{ Size() (columns, lines int) }); ok {
		return s.Size()
	}
	f, ok := out.(*os.File)
	if !ok || !isTerminal(out) {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(f.Fd())) //nolint:gosec // a descriptor is small
	if err != nil || columns < 1 || lines < 1 {
		return usualWidth, 24
	}
	return columns, lines
}
