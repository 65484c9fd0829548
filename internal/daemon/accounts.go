package daemon

// The users whose tasks this host runs. The worker asks whether the host has an account of a user. A directory service may
// be slow, so the lookup does not run in the worker's loop. See docs/adr, ADR 118.

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
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/step"
	"github.com/musterhq/muster/worker/useraccounts"
)

// onlyUser returns the only user whose tasks a daemon runs, or "" if it runs the tasks of all users. A daemon that is not
// root runs every task as its own user. So a task of another user could read the daemon's key and act as the host.
// onlyUser fails if the user's name cannot be looked up: with a wrong name, the host would refuse its own user's tasks.
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

// prioritiesOf returns the highest priorities that the settings allow. Root and the daemon's own user are operators. A
// daemon that runs the tasks of others as its own user cannot check whether an offer really is an operator's, so it grants
// operators their priority only in its own offers.
func prioritiesOf(cfg Config, l resources.Limits) *contract.Priorities {
	operators := []string{contract.Root}
	if own, err := api.NameOf(os.Geteuid()); err == nil && own != contract.Root {
		operators = append(operators, own)
	}
	return l.Priorities(operators, cfg.RunOthersAsMe)
}

// noRoot reports whether the daemon runs as root but runs no tasks of root.
func noRoot(cfg Config) bool { return os.Geteuid() == 0 && !cfg.AllowRoot }

// notForOthers returns the accounts as which jobs of other hosts may not run here, each with the reason: the accounts of the
// system, and root unless its tasks are allowed. It returns none for a daemon that is not root, because such a daemon
// cannot run tasks as other accounts.
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

// lookUpWidth bounds the concurrent lookups. One scheduler gets only a portion of them, so that its hanging lookups leave
// some for two other schedulers; see useraccounts.Portions.
const lookUpWidth = 8

// lookups looks up accounts. It begins the lookups for one scheduler in the order in which they were asked.
type lookups struct {
	find  func(name string) (uid int, err error)
	asked chan step.UserLookup
}

func newLookups(find func(name string) (uid int, err error)) *lookups {
	return &lookups{find: find, asked: make(chan step.UserLookup, useraccounts.MaxLookUps)}
}

// ask queues users. It does not block: the channel has room for as many lookups as the worker has open.
func (l *lookups) ask(users []step.UserLookup) {
	for _, u := range users {
		l.asked <- u
	}
}

// run does the lookups and calls tell with each answer, until ctx ends. It does not wait for lookups that hang.
func (l *lookups) run(ctx context.Context, tell func(user string, is useraccounts.Presence)) error {
	var waiting []step.UserLookup // at most worker.MaxLookUps
	running, ended := useraccounts.NewPortions(lookUpWidth), make(chan job.Peer, lookUpWidth)
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-l.asked:
			waiting = append(waiting, u)
		case p := <-ended:
			running.Add(p, -1)
		}
		waiting = slices.DeleteFunc(waiting, func(u step.UserLookup) bool {
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

// presenceOf translates the error of a lookup. A user is Absent only if the directory service has answered so; after any
// other error the user is Unknown.
func presenceOf(err error) useraccounts.Presence {
	if err == nil {
		return useraccounts.Present
	}
	if _, missing := errors.AsType[user.UnknownUserError](err); missing {
		return useraccounts.Absent
	}
	return useraccounts.Unknown
}
