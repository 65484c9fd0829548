package session

// The job files that a session has carried. A Start of a later task with the same job file names only its digest.
// See docs/adr, ADR 87.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/job"
)

// Bounds of the files that both sides remember. They are part of the protocol: both sides forget the same files.
const (
	maxFiles     = 64
	maxFileBytes = job.MaxSpecBytes
)

var (
	errNoFile    = errors.New("a Start without a job file, or with one that the session has not carried")
	errFileAgain = errors.New("a Start with a job file that the session has carried already")
	errNoArrays  = fmt.Errorf("%w: a task of an array, and the peer has an earlier version, which does not know arrays", ErrInvalid)
	errNoGangs   = fmt.Errorf("%w: a member of a gang, and the peer has an earlier version, which does not know gangs", ErrInvalid)
)

// files are the job files that the session last carried in one direction, oldest first. T is what a side keeps for each
// file.
type files[T any] struct {
	known   map[job.Digest]T
	order   []carried
	bytes   int
	repeats bool // the peer has an earlier version, where each Start carries its job file; nothing is remembered
}

// carried is one file in the order of its first Start.
type carried struct {
	sum  job.Digest
	size int
}

// add remembers a file, and forgets the oldest ones beyond the bounds.
func (fs *files[T]) add(sum job.Digest, size int, value T) {
	if fs.repeats {
		return
	}
	if fs.known == nil {
		fs.known = map[job.Digest]T{}
	}
	fs.known[sum] = value
	fs.order = append(fs.order, carried{sum, size})
	fs.bytes += size
	for len(fs.order) > maxFiles || fs.bytes > maxFileBytes {
		delete(fs.known, fs.order[0].sum)
		fs.bytes -= fs.order[0].size
		fs.order = fs.order[1:]
	}
}
