package spawn

// Looking at files that a user named, for his containers. A look that hangs in a dead file server keeps its thread for
// ever, so each user has only a few.

import (
	"context"
	"sync"
	"time"
)

// maxLooks bounds the looks of one user at a time, those that hang included. Other looks take microseconds, and wait for
// a slot.
const maxLooks = 8

// looks are the looks of all users. The zero value is ready for use.
type looks struct {
	mu   sync.Mutex
	user map[string]*userLooks // guarded by mu; those who have any
}

// userLooks are the looks of one user.
type userLooks struct {
	slots chan struct{} // a semaphore: one token for each look
	uses  int           // guarded by looks.mu; how many looks have a slot or wait for one
	hang  int           // guarded by looks.mu; how many were given up and have not returned
}

// begin waits for a slot of the user. It returns an error at once if looks that hang take all of them.
func (l *looks) begin(user string, over <-chan struct{}) (end func(), err error) {
	l.mu.Lock()
	u := l.user[user]
	if u == nil {
		u = &userLooks{slots: make(chan struct{}, maxLooks)}
		if l.user == nil {
			l.user = map[string]*userLooks{}
		}
		l.user[user] = u
	}
	if u.hang >= maxLooks {
		l.mu.Unlock()
		return nil, RefuseHere("%d starts of user %s hang in files that do not answer on this node", u.hang, user)
	}
	u.uses++
	l.mu.Unlock()
	end = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if u.uses--; u.uses == 0 {
			delete(l.user, user)
		}
	}
	select {
	case u.slots <- struct{}{}:
		rest := end
		return func() { <-u.slots; rest() }, nil
	case <-over:
		end()
		return nil, RefuseHere("other starts of user %s wait for files that do not answer on this node", user)
	}
}

// hangs counts a look that was given up, until it returns.
func (l *looks) hangs(user string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.user[user]; u != nil {
		u.hang += n
	}
}

// look calls f, which may hang, in a goroutine of its own, and waits at most until ctx ends or s.answer has passed. A
// value that f returns later goes to drop. look returns ended if ctx has ended, and late after s.answer.
func look[T any](ctx context.Context, s *Spawner, user string, f func() (T, error), drop func(T), ended, late error) (T, error) {
	var none T
	ctx, cancel := context.WithTimeoutCause(ctx, s.answer, late)
	defer cancel()
	end, err := s.looks.begin(user, ctx.Done())
	if err != nil {
		return none, err
	}
	type found struct {
		value T
		err   error
	}
	answer := make(chan found, 1)
	var mu sync.Mutex
	given, done := false, false // guarded by mu: whether f was given up, and whether it has returned
	began := time.Now()
	go func() {
		value, err := f()
		mu.Lock()
		done = true
		up := given
		mu.Unlock()
		if up {
			s.looks.hangs(user, -1)
			drop(value)
			s.log.InfoContext(ctx, "files of a container's start answered late", "user", user, "after", time.Since(began).Round(time.Second).String())
		} else {
			answer <- found{value, err}
		}
		end()
	}()
	select {
	case a := <-answer:
		return a.value, a.err
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	if done {
		a := <-answer
		return a.value, a.err
	}
	given = true
	s.looks.hangs(user, 1)
	if context.Cause(ctx) == late { //nolint:errorlint // it is this very value
		return none, late
	}
	return none, ended
}
