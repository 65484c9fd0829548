package state

// Sets of tasks.

import (
	"math/bits"

	"github.com/musterhq/muster/job"
)

// Set is a set of tasks of one job: a bit for each task. The zero value is empty.
type Set struct {
	words []uint64
	n     int
}

// Len returns the number of tasks in the set.
func (s *Set) Len() int { return s.n }

// Has reports whether a task is in the set.
func (s *Set) Has(i int) bool { return i>>6 < len(s.words) && s.words[i>>6]>>(i&63)&1 != 0 }

// Add adds a task. It returns false if the task was in the set.
func (s *Set) Add(i int) bool {
	if s.Has(i) {
		return false
	}
	if need := i>>6 + 1; need > len(s.words) {
		s.words = append(s.words, make([]uint64, need-len(s.words))...)
	}
	s.words[i>>6] |= 1 << (i & 63)
	s.n++
	return true
}

// Remove removes a task. It returns false if the task was not in the set.
func (s *Set) Remove(i int) bool {
	if !s.Has(i) {
		return false
	}
	s.words[i>>6] &^= 1 << (i & 63)
	s.n--
	return true
}

// Next returns the first task in the set from a task on, or false if there is none.
func (s *Set) Next(from int) (int, bool) {
	if s.n == 0 {
		return 0, false
	}
	for w := from >> 6; w < len(s.words); w++ {
		word := s.words[w]
		if w == from>>6 {
			word &= ^uint64(0) << (from & 63)
		}
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}

// word returns 64 tasks of the set.
func (s *Set) word(w int) uint64 {
	if w < len(s.words) {
		return s.words[w]
	}
	return 0
}

// anyWord reports whether f is not 0 for some 64 tasks of the range. It gets the index of the word, and the bits of it
// that are in the range.
func anyWord(r job.Range, f func(w int, mask uint64) uint64) bool {
	for w := r.First >> 6; w <= r.Last>>6; w++ {
		mask := ^uint64(0)
		if w == r.First>>6 {
			mask &= ^uint64(0) << (r.First & 63)
		}
		if w == r.Last>>6 {
			mask &= ^uint64(0) >> (63 - r.Last&63)
		}
		if f(w, mask) != 0 {
			return true
		}
	}
	return false
}

// setBlock is the number of tasks in a block, which is the part of a set that has a row of its own: 512 bytes.
const (
	setBlock   = 4096
	blockWords = setBlock / 64
)

// block returns the words of a block.
func (s *Set) block(k int) []uint64 {
	from := min(k*blockWords, len(s.words))
	return s.words[from:min(from+blockWords, len(s.words))]
}

// putBlock adds the tasks of a block.
func (s *Set) putBlock(k int, words []uint64) {
	for w, word := range words {
		for ; word != 0; word &= word - 1 {
			s.Add((k*blockWords+w)<<6 + bits.TrailingZeros64(word))
		}
	}
}
