package daemon

// HTTP requests over TCP: the account as which they act (the setting http-user), and the host names that they may use. All
// who have the token are one user, for limits, fair share and the audit log too. There is no default account such as
// nobody: the files of jobs would belong to everything else that runs as nobody. Nor do requests act as root by default:
// the token would then be root on every host that runs root's jobs. A user in a header would need a login, and a key for
// each user.

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/musterhq/muster/api"
)

// nobodyOnTCP is the user of requests over TCP if no account is set. It is only for listings and limits.
const nobodyOnTCP = "http"

// tcpUser returns the user of requests over TCP. jobs is false if such requests cannot submit jobs, because there is no
// account as which the jobs would run.
func tcpUser(cfg Config, only string) (name string, jobs bool) {
	switch {
	case cfg.HTTPUser != "":
		return cfg.HTTPUser, true
	case only != "" && cfg.HTTPToken != "":
		return only, true // whoever has the token of a user's daemon acts as that user
	}
	return nobodyOnTCP, os.Geteuid() != 0
}

// checkHTTPUser returns an error if requests over TCP cannot act as the user of the setting.
func (c Config) checkHTTPUser() error {
	if c.HTTPUser == "" {
		return nil
	}
	only, err := onlyUser(c)
	switch {
	case err != nil:
		return err
	case only == c.HTTPUser:
		return nil
	case only != "":
		return badSetting("http-user", "%.80q: this daemon runs tasks as %s only, so requests over HTTP are %s's; leave it out", c.HTTPUser, only, only)
	case os.Geteuid() != 0:
		return nil // this daemon runs the tasks of all users as its own user
	}
	uid, err := uidOf(c.HTTPUser)
	_, missing := errors.AsType[user.UnknownUserError](err)
	switch {
	case missing:
		return badSetting("http-user", "%.80q: no such user on this host", c.HTTPUser)
	case err == nil && uid == 0 && !c.AllowRoot:
		return badSetting("http-user", "%.80q is root, whose tasks this daemon runs only with --allow-root; name another account", c.HTTPUser)
	}
	return nil // the daemon starts even if a directory service does not answer
}

// httpFact says as which user requests over TCP act.
func httpFact(cfg Config) api.Fact {
	f := api.Fact{Name: "http", State: api.FactSkip, Detail: "HTTP over TCP is off"}
	if cfg.HTTP == "" {
		return f
	}
	only, err := onlyUser(cfg)
	if err != nil {
		f.State, f.Detail = api.FactWarn, err.Error()
		return f
	}
	name, jobs := tcpUser(cfg, only)
	f.State, f.Detail = api.FactOK, "requests at "+cfg.HTTP+" act as user "+name
	if err := cfg.checkHTTPUser(); err != nil {
		f.State, f.Detail, f.Advice = api.FactFail, err.Error(), "give --http-user with an account of this host"
		return f
	}
	switch _, err := uidOf(name); {
	case !jobs:
		f.State, f.Detail = api.FactWarn, "requests at "+cfg.HTTP+" can read, but submit no jobs: no account is named for them"
		f.Advice = "name the account with --http-user"
	case err != nil && os.Geteuid() == 0:
		f.State, f.Detail = api.FactWarn, "user "+name+" could not be looked up: "+err.Error()
	}
	return f
}

const maxHostBytes = 253 // the longest name that there can be

// CheckHost returns an error if a word is not a host name, as browsers send it.
func CheckHost(name string) error {
	if name == "" || len(name) > maxHostBytes || strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return fmt.Errorf("%.80q: want a host name without a port, such as gpu.example", name)
	}
	return nil
}

// httpHosts returns the host names that requests over TCP may use, besides those of loopback. The names of this host are
// among them only if there is a token, because in some networks a stranger can make these names lead elsewhere.
func httpHosts(cfg Config) []string {
	names := cfg.HTTPHosts
	if cfg.HTTPToken == "" {
		return names
	}
	names = append(slices.Clone(names), cfg.Name)
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	return names
}
