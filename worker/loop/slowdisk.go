package loop

// Writes that hang: the loop goes on while the disk does not answer. See docs/adr, ADR 164.

import (
	"errors"
	"time"
)

// hangsAfter is how long the loop waits for a write to disk. A disk under load takes a second or two.
const hangsAfter = 10 * time.Second

// errHangs says that a write has not returned in time. It may still succeed. The core then behaves as after any other
// write that has failed: it tries again.
var errHangs = errors.New("the disk of the data directory does not answer")

// disk makes the loop's writes, one after the other, in goroutines of their own. The loop waits for each, but not for
// longer than hangsAfter.
type disk struct {
	hung chan struct{} // closed when a write that took too long has returned; nil: there is none
}

// write calls f and returns its error, or errHangs if f takes too long. Until such an f has returned, write calls no
// other one and returns errHangs at once.
func (d *disk) write(f func() error) error {
	if d.hung != nil {
		select {
		case <-d.hung:
			d.hung = nil
		default:
			return errHangs
		}
	}
	var err error
	done := make(chan struct{})
	go func() { err = f(); close(done) }()
	late := time.NewTimer(hangsAfter)
	defer late.Stop()
	select {
	case <-done:
		return err
	case <-late.C:
		d.hung = done
		return errHangs
	}
}
