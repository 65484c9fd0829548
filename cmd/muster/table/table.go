// Package table lays out listings: which columns are shown, in which order the rows are, and how wide each column is.
//
// A column is a value. The flags -o, --sort and --format and their help follow from the list of columns, so all verbs have
// the same. On a terminal the widest columns are cut until a line fits; ids of jobs, states and figures are never cut,
// because people copy and search for them. Without a terminal nothing is cut. Templates get the texts of the columns, as in
// Docker; for values there is --json.
package table

// The columns of a listing, how people name them, and the order of the rows.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Level says when a column is shown that the user has not named.
type Level int

// The levels.
const (
	Usual  Level = iota // always
	Wide                // with --wide
	Chosen              // never
)

// Column is one column of a listing.
type Column[T any] struct {
	Name  string // as --columns, --sort and --format take it, such as last-seen
	Head  string // its header; empty: the name in capitals
	Help  string
	Cell  func(T) string
	Order func(a, b T) int // the order of rows; nil: that of the texts
	Least int              // the least width to which it may be cut; 0: it is never cut
	Level Level
	IsKey bool // identifies the item

	width int // the width that the user wants; 0: as wide as needed
}

// maxWidth bounds the width that a user may ask for.
const maxWidth = 10_000

// header returns the first line of the column.
func (c Column[T]) header() string {
	return cmp.Or(c.Head, strings.ToUpper(strings.ReplaceAll(c.Name, "-", " ")))
}

// Columns are all columns that a listing can have, in their order.
type Columns[T any] []Column[T]

// Shown returns the columns up to a level.
func (all Columns[T]) Shown(level Level) Columns[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c Column[T]) bool { return c.Level > level })
}

// Pick returns the columns that a list such as id,name:20 names, in its order; the number is the width of the column.
func (all Columns[T]) Pick(list string) (Columns[T], error) {
	var picked Columns[T]
	for name := range strings.SplitSeq(list, ",") {
		name, width, sized := strings.Cut(strings.TrimSpace(name), ":")
		c, err := all.find(name)
		if err != nil {
			return nil, err
		}
		if sized {
			if c.width, err = strconv.Atoi(width); err != nil || c.width < 1 || c.width > maxWidth {
				return nil, fmt.Errorf("%.40q: want the width of the column, 1 to %d", name+":"+width, maxWidth)
			}
		}
		picked = append(picked, c)
	}
	return picked, nil
}

// find returns the column with a name, in any case.
func (all Columns[T]) find(name string) (Column[T], error) {
	for _, c := range all {
		if plain(c.Name) == plain(name) {
			return c, nil
		}
	}
	return Column[T]{}, fmt.Errorf("no such column: %.40q; there are %s", name, strings.Join(all.names(), ", "))
}

// plain returns a name without case and dashes, so that LastSeen in a template means last-seen.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }

func (all Columns[T]) names() []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	return names
}

// meaning describes a column.
type meaning struct{ name, text string }

// Help says what each column is, one in a line.
func (all Columns[T]) Help() string {
	var b strings.Builder
	meanings := make([]meaning, len(all))
	for i, c := range all {
		meanings[i] = meaning{c.Name, c.Help}
	}
	p := NewPrinter(&b, Columns[meaning]{
		{Name: "column", Cell: func(m meaning) string { return m.name }},
		{Name: "meaning", Cell: func(m meaning) string { return m.text }},
	}, 0)
	_ = p.Rows(meanings) // a strings.Builder takes it all
	return b.String()
}

// Text returns the texts of all columns.
func (all Columns[T]) Text(item T) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.Cell(item)
	}
	return strings.Join(texts, "\t")
}

// Key returns the text that identifies an item.
func (all Columns[T]) Key(item T) string {
	for _, c := range all {
		if c.IsKey {
			return Clean(c.Cell(item))
		}
	}
	return ""
}

// By returns a comparison of items by a number or a text.
func By[T any, K cmp.Ordered](key func(T) K) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(key(a), key(b)) }
}

// Sorter returns the order that a list such as user,-submitted means. A dash before a column, or :desc after it,
// reverses the column's order.
func (all Columns[T]) Sorter(list string) (func(a, b T) int, error) {
	var orders []func(a, b T) int
	for text := range strings.SplitSeq(list, ",") {
		name, reverse := strings.CutPrefix(strings.TrimSpace(text), "-")
		name, way, said := strings.Cut(name, ":")
		if said && way != "asc" && way != "desc" {
			return nil, fmt.Errorf("%.40q: want asc or desc after the colon", text)
		}
		c, err := all.find(name)
		if err != nil {
			return nil, err
		}
		order := c.Order
		if order == nil {
			order = By(c.Cell)
		}
		if reverse != (way == "desc") {
			orders = append(orders, func(a, b T) int { return order(b, a) })
		} else {
			orders = append(orders, order)
		}
	}
	return func(a, b T) int {
		for _, order := range orders {
			if n := order(a, b); n != 0 {
				return n
			}
		}
		return 0
	}, nil
}
