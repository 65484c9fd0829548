package daemon

// Whose tasks this host runs, by the accounts that it has. The worker asks whether it has an account of a user; a directory service
// may be slow, so lookups are not for the worker's loop. See docs/adr, ADR 118.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/osuser"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// onlyUser returns the user whose tasks a daemon runs, or "" if it runs those of all users. A daemon that is not root
// runs every task as its own user. So a task of someone else could read the daemon's key and act as the host.
// The name must be known: with another one, the host would refuse the tasks of its own user.
func onlyUser(cfg Config) (string, error) {
	if os.Geteuid() == 0 || cfg.RunOthersAsMe {
		return "", nil
	}
	name, err := api.NameOf(os.Geteuid())
	if err != nil {
		return "", fmt.Errorf("whose tasks to run: the name of the user of this daemon is not known: %w; start it again", err)
	}
	return name, nil
}

// prioritiesOf returns the highest priorities by the settings. Root and the daemon's own user are operators. A daemon that
// runs the tasks of others as its own user cannot tell who named an operator, so only its own offers may.
func prioritiesOf(cfg Config, l worker.Limits) *contract.Priorities {
	operators := []string{contract.Root}
	if own, err := api.NameOf(os.Geteuid()); err == nil && own != contract.Root {
		operators = append(operators, own)
	}
	return l.Priorities(operators, cfg.RunOthersAsMe)
}

// noRoot reports whether the daemon is root's and yet runs no tasks of root.
func noRoot(cfg Config) bool { return os.Geteuid() == 0 && !cfg.AllowRoot }

// notForOthers returns the accounts whose names jobs of other hosts may not use here, each with the reason: those of the
// system, and root unless its tasks are allowed. It is about daemons of root; another one cannot run tasks as them.
func notForOthers(cfg Config) (map[string]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	all, err := osuser.InFile()
	if err != nil {
		return nil, err
	}
	first := osuser.FirstUser()
	out := map[string]string{}
	for _, u := range all {
		switch {
		case u.UID == 0 && cfg.AllowRoot:
		case u.UID == 0:
			out[u.Name] = "this node runs no tasks of root; its daemon needs --allow-root"
		case u.UID < first:
			out[u.Name] = fmt.Sprintf("user %s is an account of the system here (uid %d is below %d), so no other node may use its name", u.Name, u.UID, first)
		}
	}
	return out, nil
}

// uidOf looks up the uid of a user as the runner does.
func uidOf(name string) (int, error) {
	u, err := osuser.Lookup(name)
	return int(u.UID), err
}

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
