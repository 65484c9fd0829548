package job

// Selectors: how users name jobs and tasks on the command line.

import (
	"fmt"
	"strconv"
	"strings"
)

// Selector is a parsed selector: all jobs, the caller's newest job, or the jobs whose ID begins with Prefix. Tasks
// limits it to some tasks of those jobs, or some gangs of an array of gangs; empty means all. Ranks limits these gangs
// to some of their ranks; empty means all. See Layout.Named.
type Selector struct {
	All    bool
	Last   bool
	Prefix string
	Tasks  []Range
	Ranks  []Range
}

// Range is the tasks First to Last, inclusive.
type Range struct{ First, Last int }

// MaxRanges bounds the ranges of one selector and of one record.
const MaxRanges = 1000

// ParseSelector parses all, last, an ID or a prefix of one, ID.3, ID.0-9,12, or ID.3.1.
func ParseSelector(text string) (Selector, error) {
	switch text {
	case "all":
		return Selector{All: true}, nil
	case "":
		return Selector{}, fmt.Errorf("job %q: give an id, a prefix of one, last or all", text)
	}
	id, tasks, some := strings.Cut(text, ".")
	tasks, ranks, ranked := strings.Cut(tasks, ".")
	s := Selector{Prefix: id}
	if id == "last" {
		s = Selector{Last: true}
	} else if strings.Trim(id, alphabet+"-") != "" || len(id) > idChars || id == "" {
		return Selector{}, fmt.Errorf("job %.60q: not a job id; `muster jobs` lists them", text)
	}
	if !some {
		return s, nil
	}
	var err error
	if s.Tasks, err = ParseRanges(tasks); err != nil {
		return Selector{}, fmt.Errorf("tasks of %.60q: %w", text, err)
	}
	if !ranked {
		return s, nil
	}
	if s.Ranks, err = ParseRanges(ranks); err != nil {
		return Selector{}, fmt.Errorf("ranks of %.60q: %w", text, err)
	}
	return s, nil
}

// ParseRanges parses the numbers of tasks, such as 3 or 0-9,12.
func ParseRanges(text string) ([]Range, error) {
	parts := strings.Split(text, ",")
	if len(parts) > MaxRanges {
		return nil, fmt.Errorf("%d ranges; at most %d", len(parts), MaxRanges)
	}
	ranges := make([]Range, 0, len(parts))
	for _, part := range parts {
		r, err := parseRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// RangesText returns ranges as ParseRanges reads them.
func RangesText(ranges []Range) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		if parts[i] = strconv.Itoa(r.First); r.Last != r.First {
			parts[i] += "-" + strconv.Itoa(r.Last)
		}
	}
	return strings.Join(parts, ",")
}

func parseRange(part string) (Range, error) {
	from, to, two := strings.Cut(part, "-")
	if !two {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 31)
	last, err2 := strconv.ParseUint(to, 10, 31)
	if err1 != nil || err2 != nil || last < first {
		return Range{}, fmt.Errorf("%.20q: want a task number or a range such as 0-9", part)
	}
	return Range{First: int(first), Last: int(last)}, nil
}

// Has reports whether the selector includes task i.
func (s Selector) Has(i int) bool {
	for _, r := range s.Tasks {
		if i >= r.First && i <= r.Last {
			return true
		}
	}
	return len(s.Tasks) == 0
}
