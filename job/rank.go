package job

// How people name the tasks of gangs: ID.2 is rank 2 of a gang. In an array of gangs, ID.3 is the gang with index 3, and
// ID.3.1 its rank 1.

import (
	"errors"
	"fmt"
	"strconv"
)

// errNoRanks means that a selector such as ID.3.1 names ranks of a job that is not an array of gangs.
var errNoRanks = errors.New("INDEX.RANK names a task of an array of gangs only; name this one by one number")

// byRank reports whether a task is named by an index and a rank.
func (l Layout) byRank() bool { return l.isArray && l.size > 1 }

// Name returns how people name the task with this number, after the job's ID and a dot.
func (l Layout) Name(number int) string {
	if !l.byRank() {
		return strconv.Itoa(number)
	}
	return fmt.Sprintf("%d.%d", number/l.size, number%l.size)
}

// Named returns the numbers of the tasks that a selector names. If the selector names none of the job's tasks, the
// result may be empty, although the selector is not about all tasks.
func (l Layout) Named(s Selector) ([]Range, error) {
	switch {
	case !l.byRank() && len(s.Ranks) > 0:
		return nil, errNoRanks
	case !l.byRank():
		return s.Tasks, nil
	}
	ranks := s.Ranks
	if len(ranks) == 0 {
		ranks = []Range{{0, l.size - 1}}
	}
	var out []Range
	for _, indices := range s.Tasks {
		for _, r := range ranks {
			if r.First == 0 && r.Last >= l.size-1 {
				if indices.First <= MaxIndex/l.size {
					out = append(out, Range{indices.First * l.size, min(MaxIndex, indices.Last*l.size+l.size-1)})
				}
				continue
			}
			var err error
			if out, err = l.ranks(out, indices, r); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// ranks appends the numbers of some ranks of each gang with one of the indices.
func (l Layout) ranks(out []Range, indices, ranks Range) ([]Range, error) {
	if ranks.First >= l.size {
		return out, nil
	}
	last := min(ranks.Last, l.size-1)
	for e := l.array.at(indices.First); e < l.array.n && l.array.Index(e) <= indices.Last; e++ {
		first := l.array.Index(e) * l.size
		if out = append(out, Range{first + ranks.First, first + last}); len(out) > MaxRanges {
			return nil, fmt.Errorf("ranks of more than %d gangs; name fewer at a time, or whole gangs", MaxRanges)
		}
	}
	return out, nil
}
