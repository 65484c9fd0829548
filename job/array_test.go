package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func indices(l Layout) []int {
	var out []int
	for i := range l.Tasks() {
		out = append(out, l.Number(i))
	}
	return out
}

func TestArraysAreParsed(t *testing.T) {
	for text, want := range map[string][]int{
		"0-4": {0, 1, 2, 3, 4}, "7": {7}, "1,3,5": {1, 3, 5}, "5,1,3": {1, 3, 5}, "0-30:10": {0, 10, 20, 30},
		"0-31:10": {0, 10, 20, 30}, "3,3,3": {3}, "0-3,2-5": {0, 1, 2, 3, 4, 5}, "0-10:5,1-11:5": {0, 1, 5, 6, 10, 11},
		"0-6:2,3-4,2": {0, 2, 3, 4, 6}, "5-6,0-9,2-20:9,30": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 20, 30},
		"10,11,20,30,40,41": {10, 11, 20, 30, 40, 41}, "2147483647": {MaxIndex}, "0-4%2": {0, 1, 2, 3, 4},
	} {
		l, err := (&Spec{Array: text}).Layout()
		if err != nil || !slices.Equal(indices(l), want) || !l.IsArray() {
			t.Errorf("%s has the indices %v, %v; want %v", text, indices(l), err, want)
		}
		for i, n := range want {
			if got := l.Select([]Range{{n, n}}); !slices.Equal(got, []Range{{i, i}}) {
				t.Errorf("%s: number %d selects %v, want %v", text, n, got, []Range{{i, i}})
			}
		}
	}
	if l, err := (&Spec{Array: "0-999999%64"}).Layout(); err != nil || l.Tasks() != MaxTasks || l.AtOnce() != 64 {
		t.Errorf("a million tasks: %d, %d at once, %v, want no error, %v and 64", l.Tasks(), l.AtOnce(), err, MaxTasks)
	}
	for _, bad := range []string{
		"%", "%0", "%x", "0-", "-1", "5-1", "1:2", "0-9:0", "a", "0,,1", "0-1000000", "0-2147483648", "%8", "0-4%-1",
		"0-999999,1000000-1999999", "0-999999,1000000-1999999,2000000-2999999", "0-999998:2,1-999999:2", strings.Repeat("1,", maxArrayText/2) + "1",
	} {
		if l, err := (&Spec{Array: bad}).Layout(); err == nil {
			t.Errorf("%.20q is accepted as %d tasks", bad, l.Tasks())
		}
	}
}

// BenchmarkWorstArrays parses arrays of any text in a few milliseconds, because each request about the job does so.
func BenchmarkWorstArrays(b *testing.B) {
	var apart, woven strings.Builder
	for i := 0; apart.Len() < maxArrayText-16; i += 2 {
		fmt.Fprintf(&apart, "%d,", i)
	}
	for i := 0; woven.Len() < maxArrayText-16; i++ {
		fmt.Fprintf(&woven, "%d-%d:33,", i, i+33*64)
	}
	for name, text := range map[string]string{
		"apart": apart.String() + "0", "woven": woven.String() + "0", "same": strings.Repeat("0-999999,", maxArrayText/10) + "0",
		"steps": fmt.Sprintf("0-%d:2,1-%d:2", maxWoven-2, maxWoven-2),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if l, err := (&Spec{Array: text}).Layout(); err != nil && name != "woven" {
					b.Fatal(l.Tasks(), err)
				}
			}
		})
	}
}

// A number is returned even if the array of the job cannot be parsed, because a later version has accepted it.
func TestNumberOfATaskWithoutALayout(t *testing.T) {
	if got := (Layout{}).Number(7); got != 7 {
		t.Errorf("task 7 has the number %d, want 7", got)
	}
}

func TestEachLineIsChecked(t *testing.T) {
	for want, lines := range map[string][]string{
		"":                        {strings.Repeat("x", MaxEntry), "", "é"},
		"line 2 has 131059 bytes": {"", strings.Repeat("x", MaxEntry+1)},
		"line 1 is not text":      {"a\xff"},
		"more than 1000000":       make([]string, MaxTasks+1),
	} {
		err := checkArray(Spec{EachLine: lines})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d lines: %v, want %q", len(lines), err, want)
		}
	}
}

func TestEachLineIsATask(t *testing.T) {
	l, err := (&Spec{EachLine: []string{"a", "b", "c"}, Array: "%2"}).Layout()
	if err != nil || l.Tasks() != 3 || l.AtOnce() != 2 || !l.IsArray() {
		t.Errorf("three lines, two at once: %d tasks, %d at once, %v, want 3 and 2", l.Tasks(), l.AtOnce(), err)
	}
	if _, err := (&Spec{EachLine: []string{"a"}, Array: "0-3"}).Layout(); err == nil {
		t.Error("lines and indices are accepted together")
	}
	if l, err := (&Spec{}).Layout(); err != nil || l.Tasks() != 1 || l.IsArray() || l.Number(0) != 0 {
		t.Errorf("a job without an array: %+v, %v, want 1 task with the number 0", l, err)
	}
}

func TestSelectorsOfALayout(t *testing.T) {
	l, err := (&Spec{Array: "10-90:10,200-299"}).Layout()
	if err != nil {
		t.Fatal(err)
	}
	for numbers, want := range map[string][]Range{
		"0-9":                 nil,
		"0-10":                {{0, 0}},
		"15-25":               {{1, 1}},
		"91-199":              nil,
		"90-200":              {{8, 9}},
		"0-1000000":           {{0, 108}},
		"299,10,20,200":       {{0, 1}, {9, 9}, {108, 108}},
		"200-220,210-5000000": {{9, 108}},
	} {
		s, err := ParseSelector("7f." + numbers)
		if got := l.Select(s.Tasks); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s selects %v, %v; want %v", numbers, got, err, want)
		}
	}
}

func FuzzArray(f *testing.F) {
	for _, seed := range []string{"0-99%8", "1,3,5", "0-30:10,5-60:7", "4-4", "%3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseArray(text)
		if err != nil || a.Len() > 10_000 {
			return
		}
		before := -1
		for i := range a.Len() {
			x := a.Index(i)
			if x <= before || x > MaxIndex || a.at(x) != i {
				t.Fatalf("%q: element %d has index %d after %d; found at %d, want more than %v, at most %v and %v", text, i, x, before, a.at(x), before, MaxIndex, i)
			}
			before = x
		}
		if a.at(before+1) != a.Len() {
			t.Fatal(fmt.Sprint(text, ": an index beyond the last is found"))
		}
	})
}

// The tasks of an array of gangs are numbered by index and rank, and all conversions between tasks and numbers agree.
func TestTasksOfGangsAreNumberedByIndexAndRank(t *testing.T) {
	l, err := (&Spec{Array: "5,9-10,20-40:10", Nodes: 3}).Layout()
	if err != nil || l.Tasks() != 18 || l.Size() != 3 {
		t.Fatalf("%+v, %v, want no error, Tasks() 18 and Size() 3", l, err)
	}
	var numbers []int
	for task := range l.Tasks() {
		numbers = append(numbers, l.Number(task))
		if got := l.Select([]Range{{l.Number(task), l.Number(task)}}); !slices.Equal(got, []Range{{task, task}}) {
			t.Errorf("task %d has the number %d, which selects %v, want %v", task, l.Number(task), got, []Range{{task, task}})
		}
		if e := l.Element(task); task < e.First || task > e.Last || l.Rank(e.First) != 0 || l.Index(e.First) != l.Index(task) || l.Rank(task) != task-e.First {
			t.Errorf("task %d of rank %d is in %v, want the element of its index", task, l.Rank(task), e)
		}
	}
	if want := []int{15, 16, 17, 27, 28, 29, 30, 31, 32, 60, 61, 62, 90, 91, 92, 120, 121, 122}; !slices.Equal(numbers, want) {
		t.Errorf("numbers %v, want %v", numbers, want)
	}
	for first := range l.Tasks() {
		for last := first; last < l.Tasks(); last++ {
			var got []int
			for _, r := range l.Numbers(nil, first, last) {
				for n := r.First; n <= r.Last; n++ {
					got = append(got, n)
				}
			}
			if !slices.Equal(got, numbers[first:last+1]) {
				t.Fatalf("tasks %d to %d: %v, want %v", first, last, got, numbers[first:last+1])
			}
		}
	}
	if got := l.Select([]Range{{16, 28}, {33, 60}}); !slices.Equal(got, []Range{{1, 4}, {9, 9}}) {
		t.Errorf("selected %v, want %v", got, []Range{{1, 4}, {9, 9}})
	}
	for _, bad := range []Spec{{Array: "0-999999", Nodes: 2}, {Array: "2147483647", Nodes: 2}, {Nodes: MaxTasks + 1}} {
		if l, err := bad.Layout(); err == nil {
			t.Errorf("%+v is accepted: %+v", bad, l)
		}
	}
}
