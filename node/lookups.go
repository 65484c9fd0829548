package node

// Lookups of accounts: the worker asks whether this host has an account of a user. A directory service may be slow, so
// lookups are not for the worker's loop.

import (
	"context"
	"errors"
	"os/user"

	"github.com/musterhq/muster/worker"
)

// lookUpWidth bounds the lookups at a time.
const lookUpWidth = 4

// lookups looks accounts up, one after the other.
type lookups struct {
	find  func(name string) (uid int, err error)
	asked chan string
}

func newLookups(find func(name string) (uid int, err error)) *lookups {
	return &lookups{find: find, asked: make(chan string, worker.MaxLookUps)}
}

// ask queues users. There is room: the worker waits for no more answers.
func (l *lookups) ask(users []string) {
	for _, name := range users {
		l.asked <- name
	}
}

// run tells the answers until ctx ends. It does not wait for lookups that hang.
func (l *lookups) run(ctx context.Context, tell func(user string, is worker.Presence)) error {
	room := make(chan struct{}, lookUpWidth)
	for {
		select {
		case <-ctx.Done():
			return nil
		case room <- struct{}{}:
		}
		select {
		case <-ctx.Done():
			return nil
		case name := <-l.asked:
			go func() {
				_, err := l.find(name)
				<-room
				tell(name, presenceOf(err))
			}()
		}
	}
}

// presenceOf says what the error of a lookup tells. Only a directory that answers can say that there is no such user.
func presenceOf(err error) worker.Presence {
	if err == nil {
		return worker.Present
	}
	if _, missing := errors.AsType[user.UnknownUserError](err); missing {
		return worker.Absent
	}
	return worker.Unknown
}
