package job

import (
	"strings"
	"testing"
)

func TestWhichNodesAListHas(t *testing.T) {
	const id = Peer("12D3KooWAbCdEf")
	for _, c := range []struct {
		list string // with blanks between the entries
		has  string
		not  string
	}{
		{"gpu-07", "gpu-07", "gpu-7 gpu-070 gpu"},
		{"a gpu-* b?", "a gpu-07 gpu- b1", "b b12 cpu-1"},
		{"n[1-3,7]", "n1 n2 n3 n7", "n n4 n10 n01 n1x"},
		{"n[8-11]", "n8 n9 n10 n11", "n08 n12 n1"},
		{"n[08-11]", "n08 n09 n10 n11", "n8 n9 n010"},
		{"n[001-128]", "n001 n099 n128", "n1 n129 n0001"},
		{"n[0]", "n0", "n00 n"},
		{"r[1-2]n[01-12]-ib", "r1n01-ib r2n12-ib", "r3n01-ib r1n1-ib r1n01"},
		{"r[1-2][5-6]", "r15 r26", "r1 r17"},
		{"n[1-12]-*", "n1-a n12-", "n13-a n1"},
		{"*[2-3]", "a2 3 n13", "a4 2a"},
		{"n[a-c]", "na nb nc", "nd n1"},
		{"n[^a]", "nb", "na n"},
		{`n\*`, "n*", "n1"},
		{"ü?", "üa üß", "ü üab"},
		{string(id), "any", ""},
		{"CdEf", "any", ""},
	} {
		ns, err := ParseNodes(strings.Fields(c.list))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(c.has) {
			if name == "any" && !ns.Has(name, id) || name != "any" && !ns.Has(name, "") {
				t.Errorf("%s lacks %s", c.list, name)
			}
		}
		for name := range strings.FieldsSeq(c.not) {
			if ns.Has(name, id) {
				t.Errorf("%s contains %s", c.list, name)
			}
		}
	}
	short, err := ParseNodes([]string{"Ef"}) // too short for the end of a peer ID
	if err != nil || short.Has("n", id) {
		t.Errorf("Ef contains %s, %v", id, err)
	}
}

func TestBadListsOfNodesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "write it like n1",
		"n[":                                   "out of place",
		"n]":                                   "out of place",
		"n[]":                                  "out of place",
		`n\`:                                   "out of place",
		"n[3-1]":                               "the range 3-1 ends before it begins",
		"n[1-12345678901]":                     "more than 9 digits",
		"n\x1b":                                "write it like n1",
		strings.Repeat("n", 300):               "write it like n1",
		"n[" + strings.Repeat("1,", 70) + "1]": "71 ranges in a list; at most 64",
	} {
		if _, err := ParseNodes([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
	}
	if _, err := ParseNodes(make([]string, 1025)); err == nil {
		t.Error("1025 entries were accepted")
	}
	many := make([]string, 33)
	for i := range many {
		many[i] = "n*"
	}
	if _, err := ParseNodes(many); err == nil || !strings.Contains(err.Error(), "more than 32 entries with") {
		t.Errorf(`33 patterns: %v, want an error and "more than 32 entries with" in it`, err)
	}
}

// Patterns are matched quickly, whatever the pattern and the name of the node: a match that tried all ways to read
// these would never end.
func TestPatternsOfNodesAreMatchedQuickly(t *testing.T) {
	ns, err := ParseNodes([]string{strings.Repeat("*[1-999999999]", 17) + "x", strings.Repeat("[^a]*", 50) + "x", strings.Repeat("*?", 100) + "x"})
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("1", MaxName)
	if ns.Has(name, "") {
		t.Error("the pattern matches")
	}
}

func FuzzNodes(f *testing.F) {
	f.Add("n[1-3,07]*", "n3")
	f.Add(`[^a-c]?\*`, "x1*")
	f.Fuzz(func(t *testing.T, text, name string) {
		ns, err := ParseNodes([]string{text})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line", err)
			}
			return
		}
		ns.Has(name, Peer(name))
		if !strings.ContainsAny(text, `*?[]\`) && len(text) <= MaxName && !ns.Has(text, "") {
			t.Errorf("%q does not contain itself", text)
		}
	})
}

func TestPinnedNodesAreMatchedByID(t *testing.T) {
	const id, other = Peer("12D3KooWAbCdEf"), Peer("12D3KooWXyZabc")
	for _, name := range []string{"n1", "", "a=b", "n[1-3]", strings.Repeat("n", MaxName+1)} {
		text := Pinned(name, id)
		ns, err := ParseNodes([]string{text})
		if err != nil || LiteralNode(text) != (text == string(id)) || !ns.Has(name, id) || ns.Has(name, other) {
			t.Errorf("Pinned(%q) = %q: %v, want a name that only the id matches", name, text, err)
		}
	}
	for _, text := range []string{"=x", "n1=", "n*=x", "n1=x*"} {
		if _, err := ParseNodes([]string{text}); err == nil {
			t.Errorf("%q is accepted as a list of nodes", text)
		}
	}
}
