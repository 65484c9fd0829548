package worker

// Writes that hang: the loop goes on while the disk does not answer. See docs/adr, ADR 164.

import (
	"errors"
	"time"
)

// errHangs says that a write has not returned in time. It may still succeed. The core then behaves as after any other
// write that has failed: it tries again.
var errHangs = errors.New("the disk of the data directory does not answer")

// disk makes the loop's writes, one after the other, in goroutines of their own. The loop waits for each, but not for
// longer than hangsAfter.
type disk struct {
	hung chan error // of a write that has not returned in time; nil: none
}

// write calls f and returns its error, or errHangs if f takes too long. Until that f has returned, no other is called.
func (d *disk) write(f func() error) error {
	if d.hung != nil {
		select {
		case <-d.hung:
			d.hung = nil
		default:
			return errHangs
		}
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	late := time.NewTimer(hangsAfter)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		d.hung = done
		return errHangs
	}
}
