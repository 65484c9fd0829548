package scheduler

// The job files that are on disk alone: each is read when a task of its job is about to start. Few are in memory at a
// time.
// See docs/adr, ADR 123.

import (
	"errors"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// maxOpened bounds the memory of the files that were read; those of arrays stay for the next task.
	maxOpened = 32 << 20
	// maxReading bounds the bytes that are read at a time. The others wait.
	maxReading = 8 << 20
	maxReads   = 16 // at a time
)

// files reads job files.
type files struct {
	*step.Turn
	entries *entries
	ready   func(*entry)        // the file of the job was read
	failed  func(*entry, error) // the file could not be read

	opened  []*entry // the one used longest ago first
	bytes   int      // of their files
	line    []*entry // to be read
	reading int      // bytes that are being read
	reads   int      // files that are being read
}

// ReadFile opens a wanted file. read returns the row of the file; it is called only if the text is on disk alone.
func ReadFile(w step.FileWanted, read func(job.ID) ([]byte, error)) step.FileRead {
	r := step.FileRead{FileWanted: w}
	text := w.Text
	if r.Text = nil; text == nil {
		if text, r.Err = read(w.Job); r.Err != nil {
			return r
		}
	}
	var s job.Spec
	if s, r.Err = state.OpenFile(w.Digest, text); r.Err == nil {
		r.Lines = s.EachLine
		r.File, r.Err = s.TaskFile()
	}
	return r
}

// has reports whether the file of the job is in memory. If not, has puts it in line to be read, and ready or failed is
// called later.
func (fs *files) has(e *entry) bool {
	switch {
	case e.job.File == nil:
		return true
	case e.opened != nil:
		i := slices.Index(fs.opened, e)
		fs.opened = append(slices.Delete(fs.opened, i, i+1), e)
		return true
	case !e.opening:
		e.opening = true
		fs.line = append(fs.line, e)
		fs.read()
	}
	return false
}

// read asks for the next files of the line, as far as the bounds allow.
func (fs *files) read() {
	for len(fs.line) > 0 && fs.reads < maxReads && (fs.reads == 0 || fs.reading+fs.line[0].job.File.Size() <= maxReading) {
		e := fs.line[0]
		fs.line[0] = nil
		fs.line = fs.line[1:]
		f := e.job.File
		fs.reads++
		fs.reading += f.Size()
		fs.Effects.Files = append(fs.Effects.Files, step.FileWanted{Job: e.job.ID, Digest: f.Digest(), Text: f.Text(), Size: f.Size()})
	}
}

// take takes a file that was read.
func (fs *files) take(r step.FileRead) {
	fs.reads--
	fs.reading -= r.Size
	if e := fs.entries.byID[r.Job]; e != nil && e.opening {
		e.opening = false
		if r.Err != nil {
			fs.failed(e, r.Err)
		} else {
			fs.open(e, &opened{file: r.File, lines: r.Lines})
			fs.ready(e)
		}
	}
	fs.read()
}

// open keeps a file in memory, and forgets those that were used longest ago.
func (fs *files) open(e *entry, o *opened) {
	e.opened = o
	fs.opened = append(fs.opened, e)
	fs.bytes += e.job.File.Size()
	for fs.bytes > maxOpened && len(fs.opened) > 1 {
		fs.forget(fs.opened[0])
	}
}

// forget frees the memory of a file.
func (fs *files) forget(e *entry) {
	if e.opened == nil {
		return
	}
	e.opened = nil
	fs.bytes -= e.job.File.Size()
	i := slices.Index(fs.opened, e)
	fs.opened = slices.Delete(fs.opened, i, i+1)
}

// started frees the file of a job that has one task.
func (fs *files) started(e *entry) {
	if e.job.Len() == 1 {
		fs.forget(e)
	}
}

// damaged reports whether the error says that a file can never be read.
func damaged(err error) bool { return errors.Is(err, state.ErrDamaged) }
