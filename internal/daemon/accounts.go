package daemon

// Whose tasks this host runs, by the accounts that it has. See docs/adr, ADR 118.

import (
	"fmt"
	"os"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/osuser"
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
