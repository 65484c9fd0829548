package table

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

type item struct {
	id, name, why string
	n             int
}

var columns = Columns[item]{
	{Name: "id", Help: "the id", IsKey: true, Cell: func(i item) string { return i.id }},
	{Name: "name", Help: "the name", Least: 8, Cell: func(i item) string { return i.name }},
	{Name: "n", Head: "#", Help: "a number", Cell: func(i item) string { return fmt.Sprint(i.n) }, Order: By(func(i item) int { return i.n })},
	{Name: "last-seen", Help: "a time", Level: Wide, Cell: func(item) string { return "2026" }},
	{Name: "why", Help: "a sentence", Least: 6, Cell: func(i item) string { return i.why }},
	{Name: "more", Help: "only by its name", Level: Chosen, Cell: func(item) string { return "more" }},
}

func text(t *testing.T, cols Columns[item], room int, pages ...[]item) string {
	t.Helper()
	var b strings.Builder
	p := NewPrinter(&b, cols, room)
	for _, items := range pages {
		if err := p.Rows(items); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestRowsFitTheColumns(t *testing.T) {
	long := strings.Repeat("long name ", 20)
	for _, c := range []struct {
		name string
		cols Columns[item]
		room int
		in   [][]item
		want string
	}{
		{"as wide as the widest cell", columns.Shown(Usual), 0, [][]item{{{"a", "x", "-", 1}, {"bcd", "yy", "", 22}}}, "ID   NAME  #   WHY\na    x     1   -\nbcd  yy    22\n"},
		{"no bound without a terminal", columns.Shown(Usual), 0, [][]item{{{"a", long, "why", 1}}}, "ID  NAME" + strings.Repeat(" ", 198) + "#  WHY\na   " + long + "  1  why\n"},
		{"cut on a terminal", columns.Shown(Usual), 24, [][]item{{{"a", long, "a reason", 1}}}, "ID  NAME      #  WHY\na   long na…  1  a reas…\n"},
		{"no narrower than the least", columns.Shown(Usual), 5, [][]item{{{"a", long, "a reason", 1}}}, "ID  NAME      #  WHY\na   long na…  1  a rea…\n"},
		{"header without items", columns.Shown(Usual), 80, [][]item{{}}, "ID  NAME  #  WHY\n"},
		{"pages", columns.Shown(Usual)[:2], 0, [][]item{{{id: "a", name: "x"}}, {{id: "bcd", name: "y"}}, {{id: "c", name: "z"}}}, "ID  NAME\na   x\nbcd  y\nc    z\n"},
		{"controls", columns[1:2], 0, [][]item{{{name: "a\x1b[2J\nb\u202ec"}}}, "NAME\na·[2J·b·c\n"},
		{"wide letters", columns[:2], 0, [][]item{{{id: "日本", name: "x"}, {id: "e\u0301", name: "y"}}}, "ID    NAME\n日本  x\ne\u0301     y\n"},
		{"cut wide letters", columns[1:2], 9, [][]item{{{name: "日本語日本語"}}}, "NAME\n日本語日…\n"},
	} {
		if got := text(t, c.cols, c.room, c.in...); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestColumnsAreChosenByName(t *testing.T) {
	cols, err := columns.Pick("NAME:5,more, LastSeen")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, cols, 0, []item{{name: "a long name"}, {name: "x"}}), "NAME   MORE  LAST SEEN\na lo…  more  2026\nx      more  2026\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const there = "; there are id, name, n, last-seen, why, more"
	for list, says := range map[string]string{
		"id,nam": `no such column: "nam"` + there, "": `no such column: ""` + there, "id:x": `"id:x": want the width of the column, 1 to 10000`,
		"id:0": `"id:0": want`, "id:99999999999999999999": "want the width",
	} {
		if _, err := columns.Pick(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Pick(%q) = %v, want %q", list, err, says)
		}
	}
	if want := "COLUMN     MEANING\nid         the id\nname       the name\nn          a number\nlast-seen  a time\nwhy        a sentence\nmore       only by its name\n"; columns.Help() != want {
		t.Errorf("help: got\n%s\nwant\n%s", columns.Help(), want)
	}
	if got := columns.Key(item{id: "a\n"}); got != "a·" {
		t.Errorf("got key %q, want %q", got, "a·")
	}
}

func TestRowsAreSortedByColumns(t *testing.T) {
	items := []item{{id: "a", n: 10}, {id: "b", n: 9}, {id: "c", n: 10}}
	for list, want := range map[string]string{"n": "bac", "-n": "acb", "n:desc": "acb", "-n:desc": "bac", "n:asc,-id": "bca", "-id": "cba", "N,ID:desc": "bca"} {
		order, err := columns.Sorter(list)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, i := range slices.SortedStableFunc(slices.Values(items), order) {
			got += i.id
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
	for list, says := range map[string]string{"x": "no such column", "": "no such column", "n:down": "want asc or desc"} {
		if _, err := columns.Sorter(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want an error and err.Error() with %q", list, err, says)
		}
	}
}

func TestTemplatePrintsRows(t *testing.T) {
	for format, want := range map[string]string{
		"{{.ID}} {{.n}}":                             "a 7\n",
		`{{.LastSeen}}\t{{$.id}}`:                    "2026\ta\n",
		"{{if .why}}{{.why}}{{else}}none{{end}}":     "none\n",
		`{{printf "%-4s|" .Name | upper}}`:           "X   |\n",
		"{{json .}}":                                 `{"id":"a","last-seen":"2026","more":"more","n":"7","name":"x","why":""}` + "\n",
		"{{json .Name}}{{/* nothing */}}":            `"x"` + "\n",
		`{{range $k, $v := .}}{{$k}}={{$v}};{{end}}`: "id=a;last-seen=2026;more=more;n=7;name=x;why=;\n",
	} {
		tpl, err := columns.Template(format)
		if err != nil {
			t.Errorf("%s: got %v, want no error", format, err)
			continue
		}
		var b bytes.Buffer
		if err := tpl.Rows(&b, []item{{id: "a", name: "x", n: 7}}); err != nil || b.String() != want {
			t.Errorf("%s: got %v, %q, want %q", format, err, b.String(), want)
		}
	}
	for format, says := range map[string]string{
		"{{.Stat}}": `no such column: "Stat"; there are id`, "{{if .id}}{{else}}{{.x}}{{end}}": `no such column: "x"`, "{{$.x}}": `no such column: "x"`,
		"{{.ID": "want a template such as '{{.id}}'", "{{nope .ID}}": `function "nope" not defined`, "": "want a template",
	} {
		if _, err := columns.Template(format); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", format, err, says)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	items := make([]item, 1000)
	for i := range items {
		items[i] = item{id: fmt.Sprintf("%024d", i), name: strings.Repeat("n", 200), why: strings.Repeat("w", 200), n: i}
	}
	for b.Loop() {
		if err := NewPrinter(io.Discard, columns.Shown(Usual), 80).Rows(items); err != nil {
			b.Fatal(err)
		}
	}
}
