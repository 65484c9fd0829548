package daemon

// Lookups of accounts: the worker asks whether this host has an account of a user. A directory service may be slow, so
// lookups are not for the worker's loop.

import (
	"context"
	"errors"
	"os/user"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// lookUpWidth bounds the lookups at a time. Each scheduler has a portion of them, so that lookups that hang of one leave
// some to the next two.
const lookUpWidth = 8

// lookups looks accounts up, those for one scheduler in their order.
type lookups struct {
	find  func(name string) (uid int, err error)
	asked chan worker.UserLookup
}

func newLookups(find func(name string) (uid int, err error)) *lookups {
	return &lookups{find: find, asked: make(chan worker.UserLookup, worker.MaxLookUps)}
}

// ask queues users. There is room: the worker waits for no more answers.
func (l *lookups) ask(users []worker.UserLookup) {
	for _, u := range users {
		l.asked <- u
	}
}

// run tells the answers until ctx ends. It does not wait for lookups that hang.
func (l *lookups) run(ctx context.Context, tell func(user string, is worker.Presence)) error {
	var waiting []worker.UserLookup // at most worker.MaxLookUps
	running, ended := worker.NewPortions(lookUpWidth), make(chan job.Peer, lookUpWidth)
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.asked:
			waiting = append(waiting, u)
		case p := <-ended:
			running.Add(p, -1)
		}
		waiting = slices.DeleteFunc(waiting, func(u worker.UserLookup) bool {
			if !running.Fits(u.For) {
				return false
			}
			running.Add(u.For, 1)
			go func() {
				_, err := l.find(u.User)
				ended <- u.For
				tell(u.User, presenceOf(err))
			}()
			return true
		})
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
