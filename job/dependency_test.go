package job

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var a, b = NewID(1, 1), NewID(2, 2)

// ids replaces A and B by the IDs of two jobs.
func ids(text string) string {
	return strings.NewReplacer("A", string(a), "B", string(b)).Replace(text)
}

func TestDependenciesAreParsed(t *testing.T) {
	for _, c := range []struct {
		list []string
		any  bool
		want []string
	}{
		{nil, false, nil},
		{[]string{"afterok:A"}, false, []string{"afterok:A"}},
		{[]string{"afterok:A:B,afterany:A"}, false, []string{"afterok:A", "afterok:B", "afterany:A"}},
		{[]string{"afternotok:A", " aftercorr:B "}, false, []string{"afternotok:A", "aftercorr:B"}},
		{[]string{"afterok:A?after:B"}, true, []string{"afterok:A?after:B"}},
		{[]string{"after:A+10:B,after:A+0"}, false, []string{"after:A+10", "after:B", "after:A"}},
	} {
		list := make([]string, 0, len(c.list))
		for _, text := range c.list {
			list = append(list, ids(text))
		}
		d, err := ParseDependencies(list, false)
		if err != nil || d.Any != c.any {
			t.Errorf("%v: %+v, %v, want no error and Any %v", c.list, d, err, c.any)
			continue
		}
		if got := d.List(); ids(strings.Join(c.want, " ")) != strings.Join(got, " ") {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
		again, err := ParseDependencies(d.List(), false)
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Errorf("%v: %+v, and read again %+v, %v, want the same", c.list, d, again, err)
		}
	}
	d, _ := ParseDependencies([]string{ids("after:A+10,afterok:A")}, false)
	if d.Terms[0].Delay != 10*time.Minute || !slices.Equal(d.IDs(), []ID{a}) {
		t.Errorf("delay %s, ids %v, want %v and %v", d.Terms[0].Delay, d.IDs(), 10*time.Minute, []ID{a})
	}
}

func TestBadDependenciesAreRefused(t *testing.T) {
	many := "afterok" + strings.Repeat(":"+string(a), MaxDependencies+1)
	for text, want := range map[string]string{
		"":                        "want afterok:ID",
		"afterok":                 "want afterok:ID",
		"afterok:":                "want afterok:ID",
		"afterok:A:":              "want afterok:ID",
		"A":                       "want afterok:ID",
		"afterOK:A":               "want afterok:ID",
		"afterok:A,":              "want afterok:ID",
		"expand:A":                "want afterok:ID",
		"singleton":               "singleton is not supported",
		"afterok:A,afterany:B?":   "cannot be mixed",
		"afterok:123":             "job id",
		"afterok:last":            "job id",
		"afterok:A+5":             "want afterok:ID",
		"after:A+x":               "not a number of minutes",
		"after:A+-1":              "not a number of minutes",
		"after:A+999999999":       "not a number of minutes",
		"afterok:A.3":             "names tasks",
		many:                      "more than 1000",
		"afterok:A?afterok:B,":    "cannot be mixed",
		"afterok:\x1b[31m":        "job id",
		"afterok:A\nafterok:B":    "job id",
		"afterok:A afterok:B":     "job id",
		"aftercorr:A?afterok:x.1": "names tasks",
	} {
		_, err := ParseDependencies([]string{ids(text)}, false)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// A draft may name jobs in other ways. These are checked when the job is submitted.
func TestDraftMayNameJobsInOtherWays(t *testing.T) {
	s := DefaultSpec()
	s.Command = []string{"true"}
	for text, ok := range map[string]bool{
		"afterok:last": true, "afterok:k3v,afterany:prepare data": true, "after:prepare+5": true, "afterok:": false, "afterok:a.1": false,
		"afterok:\x1b": false, "singleton": false, "aftercorr:prepare": false,
	} {
		s.Dependency = []string{text}
		if err := s.ValidateDraft(); (err == nil) != ok {
			t.Errorf("%q as a draft: %v, want an error exactly if it is bad", text, err)
		}
		if err := s.Validate(); err == nil {
			t.Errorf("%q may be submitted", text)
		}
	}
	s.Dependency, s.Priority = []string{"afterok:last"}, 999
	if err := s.ValidateDraft(); err == nil || !strings.Contains(err.Error(), "priority") {
		t.Errorf(`another field: %v, want an error and "priority" in it`, err)
	}
}

func TestDependenciesAreChecked(t *testing.T) {
	s := DefaultSpec()
	s.Command, s.KillOnInvalidDep = []string{"true"}, true
	s.Dependency = []string{ids("afterok:A,after:B+5")}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	s.Dependency = []string{ids("aftercorr:A")}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "only for an array") {
		t.Errorf("aftercorr without an array: %v, want an error", err)
	}
	s.Array = "0-9"
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	s.Dependency = []string{ids("aftercorr" + strings.Repeat(":A", MaxCorresponding+1))}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "at most 16") {
		t.Errorf(`many aftercorr: %v, want an error and "at most 16" in it`, err)
	}
}

// Dependencies that are read can be written, and are read again as the same.
func FuzzParseDependencies(f *testing.F) {
	f.Add(ids("afterok:A:B,after:A+10"))
	f.Add(ids("afterany:A?aftercorr:B"))
	f.Add("after:+1")
	f.Fuzz(func(t *testing.T, text string) {
		for _, draft := range []bool{false, true} {
			d, err := ParseDependencies([]string{text}, draft)
			if err != nil {
				continue
			}
			again, err := ParseDependencies(d.List(), draft)
			if err != nil || fmt.Sprint(again.List()) != fmt.Sprint(d.List()) || len(d.Terms) > 1 && again.Any != d.Any {
				t.Errorf("%q is %+v, and read again %+v, %v, want the same", text, d, again, err)
			}
		}
	})
}

func TestRangesArePaged(t *testing.T) {
	var s TaskStates
	for i := range MaxRanges + 1 {
		s.Succeeded = append(s.Succeeded, Range{4 * i, 4 * i})
		s.Open = append(s.Open, Range{4*i + 2, 4*i + 2})
	}
	s.Failed = []Range{{1, 1}}
	var all TaskStates
	pages := s.Pages()
	for _, p := range pages {
		if p.Len() > MaxRanges || p.Len() == 0 {
			t.Errorf("a page has %d ranges, want 1 to MaxRanges", p.Len())
		}
		all.Succeeded, all.Failed, all.Open = append(all.Succeeded, p.Succeeded...), append(all.Failed, p.Failed...), append(all.Open, p.Open...)
	}
	if len(pages) != 3 || !reflect.DeepEqual(all, s) {
		t.Errorf("%d pages, together %+v, want 3 and %v", len(pages), all, s)
	}
	if n := len(TaskStates{}.Pages()); n != 1 {
		t.Errorf("nothing has %d pages, want 1", n)
	}
}

func TestNumbersOfRanges(t *testing.T) {
	s := Spec{Array: "0-30:10,50-59"}
	l, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Numbers(nil, 0, l.Tasks()-1), []Range{{0, 0}, {10, 10}, {20, 20}, {30, 30}, {50, 59}}; !slices.Equal(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	got := l.Numbers(nil, 3, 5)
	got = l.Numbers(got, 6, 7)
	if want := []Range{{30, 30}, {50, 53}}; !slices.Equal(got, want) {
		t.Errorf("some: %v, want %v", got, want)
	}
}

// A host needs to know nothing of other jobs, so a host of an older version accepts the task too.
func TestTaskFileHasNoDependencies(t *testing.T) {
	s := DefaultSpec()
	s.Command, s.Dependency, s.KillOnInvalidDep = []string{"true"}, []string{ids("afterok:A")}, true
	f, err := s.TaskFile()
	if err != nil || strings.Contains(string(f.Text()), "dep") {
		t.Errorf("got %s, %v, want no dependency", f.Text(), err)
	}
}
