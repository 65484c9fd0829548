package job

import (
	"slices"
	"strings"
	"testing"
)

// Each name of a task means this task and no other, in each kind of job.
func TestEachNameMeansOneTask(t *testing.T) {
	for _, s := range []Spec{{}, {Nodes: 3}, {Array: "5,9-10,20-40:10"}, {Array: "5,9-10,20-40:10", Nodes: 3}, {Array: "0", Nodes: 2}, {EachLine: []string{"a", "b"}, Nodes: 2}} {
		l, err := s.Layout()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for task := range l.Tasks() {
			name := l.Name(l.Number(task))
			sel, err := ParseSelector("7f3k2." + name)
			if err != nil || names[name] {
				t.Fatalf("%+v: task %d is named %q, %v, want a name of its own", s, task, name, err)
			}
			names[name] = true
			numbers, err := l.Named(sel)
			if got := l.Select(numbers); err != nil || !slices.Equal(got, []Range{{task, task}}) {
				t.Errorf("%+v: %s means %v, %v; want task %d", s, name, got, err, task)
			}
		}
	}
}

func TestNamesOfMembersOfGangs(t *testing.T) {
	array := Spec{Array: "5,9-10,20-40:10", Nodes: 3}
	gang := Spec{Nodes: 3}
	for _, c := range []struct {
		spec  Spec
		text  string
		tasks []Range
	}{
		{gang, "1-2", []Range{{1, 2}}},
		{array, "9", []Range{{3, 5}}},
		{array, "5,20-30", []Range{{0, 2}, {9, 14}}},
		{array, "9.1", []Range{{4, 4}}},
		{array, "5-10.0,2", []Range{{0, 0}, {2, 3}, {5, 6}, {8, 8}}},
		{array, "9-40.1-99", []Range{{4, 5}, {7, 8}, {10, 11}, {13, 14}, {16, 17}}},
		{array, "0-2147483647.0-2", []Range{{0, 17}}},
		{array, "6-8", nil},
		{array, "9.3", nil},
		{array, "2147483647", nil},
	} {
		l, err := c.spec.Layout()
		if err != nil {
			t.Fatal(err)
		}
		sel, err := ParseSelector("last." + c.text)
		if err != nil {
			t.Fatal(err)
		}
		numbers, err := l.Named(sel)
		if got := l.Select(numbers); err != nil || !slices.Equal(got, c.tasks) {
			t.Errorf("%+v: %s means %v, %v; want %v", c.spec, c.text, got, err, c.tasks)
		}
	}
}

// A rank is named separately only together with an index, and not of a million gangs at once.
func TestInvalidRanksAreRefused(t *testing.T) {
	many := Spec{Array: "0-400000", Nodes: 2}
	for text, spec := range map[string]Spec{"3.1": {Array: "0-9"}, "0.1": {Nodes: 2}, "0-400000.1": many} {
		l, err := spec.Layout()
		if err != nil {
			t.Fatal(err)
		}
		sel, err := ParseSelector("last." + text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.Named(sel); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s of %+v means %v, %v, want an error of one line", text, spec, got, err)
		}
	}
	for _, bad := range []string{"7f.1.", "7f.1.2.3", "7f..1", "7f.1.x", "7f.1.2-1"} {
		if got, err := ParseSelector(bad); err == nil {
			t.Errorf("ParseSelector(%q) = %+v, want an error", bad, got)
		}
	}
}
