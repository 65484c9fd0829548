package job

// Arrays: the indices of a job's elements, and how the tasks of a job are numbered.
// See docs/adr, ADR 87.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxIndex is the largest index of an array.
	MaxIndex = 1<<31 - 1
	// MaxEntry bounds a line of each_line: with its name it must fit in one environment variable, of 128 KiB on Linux.
	MaxEntry = 128<<10 - len("MUSTER_ENTRY=") - 1
	// maxArrayText bounds the text of an array, because each request about the job parses it.
	maxArrayText = 16 << 10
	// maxWoven bounds the elements of ranges with steps that overlap, because they are listed one by one.
	maxWoven = 1 << 16
)

// Array is the parsed array of a job: the indices of its elements in rising order, and how many may be active at once.
type Array struct {
	runs   []run
	n      int
	AtOnce int // 0: no limit
}

// run is a part of an array whose indices have the same distance.
type run struct{ first, step, n, before int } // before: elements of the runs before it

func (r run) last() int { return r.first + (r.n-1)*r.step }

// ParseArray parses an array as Slurm writes it: indices and ranges, with a step after a colon and the limit of active
// elements after a percent sign, such as 0-99%8, 1,3,5 or 0-30:10. An index that is named twice counts once.
func ParseArray(text string) (Array, error) {
	fail := func(err error) (Array, error) {
		return Array{}, fmt.Errorf("array %.60q: %w; write it like 0-99%%8, 1,3,5 or 0-30:10", text, err)
	}
	if len(text) > maxArrayText {
		return Array{}, fmt.Errorf("array: %d bytes; at most %d; put a longer list into a file for --each-line", len(text), maxArrayText)
	}
	parts, limit, limited := strings.Cut(text, "%")
	a := Array{}
	if limited {
		n, err := strconv.ParseUint(limit, 10, 31)
		if err != nil || n == 0 {
			return fail(fmt.Errorf("%.20q is not a number of tasks above 0", limit))
		}
		a.AtOnce = int(n)
	}
	if parts == "" && limited {
		return a, nil // a limit alone, for each_line
	}
	runs, err := parseRuns(parts)
	if err != nil {
		return fail(err)
	}
	if a.runs, err = merge(runs); err != nil {
		return fail(err)
	}
	for i := range a.runs {
		a.runs[i].before = a.n
		a.n += a.runs[i].n
	}
	return a, nil
}

// arrayOf returns the array with the indices 0 to n-1.
func arrayOf(n int) Array { return Array{runs: []run{{first: 0, step: 1, n: n}}, n: n} }

var errTooLong = fmt.Errorf("more than %d elements", MaxTasks)

func parseRuns(text string) ([]run, error) {
	var runs []run
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseRun(part)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func parseRun(part string) (run, error) {
	span, by, stepped := strings.Cut(part, ":")
	from, to, two := strings.Cut(span, "-")
	if !two {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 31)
	last, err2 := strconv.ParseUint(to, 10, 31)
	step, err3 := uint64(1), error(nil)
	if stepped {
		step, err3 = strconv.ParseUint(by, 10, 31)
	}
	if err := errors.Join(err1, err2, err3); err != nil || last < first || step == 0 || stepped && !two {
		return run{}, fmt.Errorf("%.20q is not an index, a range or a range with a step", part)
	}
	n := (last-first)/step + 1
	if n > MaxTasks {
		return run{}, errTooLong
	}
	return run{first: int(first), step: int(step), n: int(n)}, nil
}

// merge returns runs in rising order that share no index.
func merge(runs []run) ([]run, error) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	var out []run
	n := 0
	for i := 0; i < len(runs); {
		next, last := i+1, runs[i].last()
		for next < len(runs) && runs[next].first <= last {
			last = max(last, runs[next].last())
			next++
		}
		united, err := unite(runs[i:next], last)
		if err != nil {
			return nil, err
		}
		for _, r := range united {
			n += r.n
		}
		out = append(out, united...)
		i = next
	}
	if n > MaxTasks {
		return nil, errTooLong
	}
	return out, nil
}

// unite returns the same indices without those that are named twice. Each run begins before the end of those before it,
// and last is the highest index.
func unite(runs []run, last int) ([]run, error) {
	if len(runs) == 1 {
		return runs, nil
	}
	if !slices.ContainsFunc(runs, func(r run) bool { return r.step > 1 }) {
		return []run{{first: runs[0].first, step: 1, n: last - runs[0].first + 1}}, nil
	}
	n := 0
	for _, r := range runs {
		if n += r.n; n > maxWoven {
			return nil, fmt.Errorf("more than %d elements in ranges that overlap and have a step", maxWoven)
		}
	}
	all := make([]int, 0, n)
	for _, r := range runs {
		for i := range r.n {
			all = append(all, r.first+i*r.step)
		}
	}
	slices.Sort(all)
	return runsOf(slices.Compact(all)), nil
}

// runsOf returns the runs of indices in rising order.
func runsOf(all []int) []run {
	var runs []run
	for _, x := range all {
		if n := len(runs); n > 0 {
			switch r := &runs[n-1]; {
			case r.n == 1:
				r.step, r.n = x-r.first, 2
				continue
			case x == r.last()+r.step:
				r.n++
				continue
			}
		}
		runs = append(runs, run{first: x, step: 1, n: 1})
	}
	return runs
}

// Len returns the number of elements.
func (a Array) Len() int { return a.n }

// Index returns the index of the element at a position, from 0 on.
func (a Array) Index(position int) int {
	i, found := slices.BinarySearchFunc(a.runs, position, func(r run, p int) int { return cmp.Compare(r.before, p) })
	if !found {
		i--
	}
	r := a.runs[i]
	return r.first + (position-r.before)*r.step
}

// at returns the position of the first element whose index is at least this one; Len if there is none.
func (a Array) at(index int) int {
	i, _ := slices.BinarySearchFunc(a.runs, index, func(r run, x int) int { return cmp.Compare(r.last(), x) })
	if i == len(a.runs) {
		return a.n
	}
	r := a.runs[i]
	return r.before + max(0, index-r.first+r.step-1)/r.step
}

// Layout is how the tasks of a job are numbered. A job has one element, or those of its array. An element is one task,
// or a gang: as many tasks as it has nodes, ranked from 0. Inside muster tasks are numbered from 0 without gaps, element
// by element. People use the index in the array, times the size of a gang, plus the rank.
type Layout struct {
	array   Array
	isArray bool
	size    int // of a gang, or 1
}

// Layout returns the numbering of the job's tasks.
func (s *Spec) Layout() (Layout, error) { return LayoutOf(s.Array, len(s.EachLine), s.Nodes) }

// LayoutOf returns the numbering of the tasks of a job with this array, this number of lines and this number of nodes.
func LayoutOf(array string, lines, nodes int) (Layout, error) {
	size := max(1, nodes)
	l, err := layoutOf(array, lines)
	switch {
	case err != nil:
		return Layout{}, err
	case size > MaxNodes:
		return Layout{}, fmt.Errorf("nodes: %d; at most %d", nodes, MaxNodes)
	case l.array.n*size > MaxTasks:
		return Layout{}, fmt.Errorf("nodes: %d elements of %d tasks; at most %d tasks", l.array.n, size, MaxTasks)
	case size > 1 && l.array.Index(l.array.n-1) > (MaxIndex-size+1)/size:
		return Layout{}, fmt.Errorf("array %.60q: an index times %d nodes is above %d", array, size, MaxIndex)
	}
	l.size = size
	return l, nil
}

func layoutOf(array string, lines int) (Layout, error) {
	if lines > MaxTasks {
		return Layout{}, fmt.Errorf("each_line: %w", errTooLong)
	}
	a := arrayOf(max(1, lines))
	if array != "" {
		parsed, err := ParseArray(array)
		switch {
		case err != nil:
			return Layout{}, err
		case lines > 0 && parsed.n > 0:
			return Layout{}, errors.New("array: with each_line give only a limit, such as %8: each line is a task")
		case lines == 0 && parsed.n == 0:
			return Layout{}, fmt.Errorf("array %.60q: names no index", array)
		case parsed.n == 0:
			a.AtOnce = parsed.AtOnce
		default:
			a = parsed
		}
	}
	return Layout{array: a, isArray: array != "" || lines > 0}, nil
}

// checkArray checks the lines. Together they are bounded by the size of a job file.
func checkArray(s Spec) error {
	for i, line := range s.EachLine {
		if len(line) > MaxEntry {
			return fmt.Errorf("each_line: line %d has %d bytes; at most %d", i+1, len(line), MaxEntry)
		}
		if strings.ContainsRune(line, 0) || !utf8.ValidString(line) {
			return fmt.Errorf("each_line: line %d is not text without zero bytes", i+1)
		}
	}
	_, err := s.Layout()
	return err
}

// IsArray reports whether the job is an array, even if it has one element.
func (l Layout) IsArray() bool { return l.isArray }

// Tasks returns the number of tasks.
func (l Layout) Tasks() int { return l.array.n * l.size }

// Size returns how many tasks an element has: 1, or the size of a gang.
func (l Layout) Size() int { return max(1, l.size) }

// Element returns the tasks of the element to which a task belongs.
func (l Layout) Element(task int) Range {
	first := task - task%l.Size()
	return Range{first, first + l.Size() - 1}
}

// Rank returns the rank of a task in its gang.
func (l Layout) Rank(task int) int { return task % l.Size() }

// Index returns the index in the array of the element to which a task belongs.
func (l Layout) Index(task int) int { return l.array.Index(task / l.Size()) }

// AtOnce returns how many elements may be active at once; 0: all.
func (l Layout) AtOnce() int { return l.array.AtOnce }

// Number returns the number that people use for a task. A zero Layout numbers tasks from 0.
func (l Layout) Number(task int) int {
	if l.array.n == 0 {
		return task
	}
	return l.Index(task)*l.size + l.Rank(task)
}

// at returns the first task whose number is at least this one; Tasks if there is none.
func (l Layout) at(number int) int {
	size := l.Size()
	e := l.array.at(number / size)
	if e == l.array.n || l.array.Index(e) > number/size {
		return e * size
	}
	return e*size + number%size
}

// Select returns the tasks whose numbers are in the ranges, as ranges of tasks in rising order that do not meet. It is
// empty if the job has none of them.
func (l Layout) Select(numbers []Range) []Range {
	var out []Range
	for _, r := range numbers {
		first, after := l.at(r.First), l.at(r.Last+1)
		if first < after {
			out = append(out, Range{first, after - 1})
		}
	}
	return joined(out)
}

// Numbers appends the numbers of the tasks first to last, as ranges that do not meet, to ranges that end before them.
func (l Layout) Numbers(ranges []Range, first, last int) []Range {
	for first <= last {
		number, n := l.stretch(first)
		n = min(n, last-first+1)
		if k := len(ranges); k > 0 && ranges[k-1].Last+1 == number {
			ranges[k-1].Last = number + n - 1
		} else {
			ranges = append(ranges, Range{number, number + n - 1})
		}
		first += n
	}
	return ranges
}

// stretch returns the number of a task, and how many tasks from it on have consecutive numbers, as far as its run shows.
func (l Layout) stretch(task int) (number, n int) {
	position, rank := task/l.size, task%l.size
	i, found := slices.BinarySearchFunc(l.array.runs, position, func(r run, p int) int { return cmp.Compare(r.before, p) })
	if !found {
		i--
	}
	r := l.array.runs[i]
	number = (r.first+(position-r.before)*r.step)*l.size + rank
	if r.step > 1 {
		return number, l.size - rank
	}
	return number, (r.before+r.n-position)*l.size - rank
}

// joined sorts ranges and joins those that meet.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var out []Range
	for _, r := range ranges {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
