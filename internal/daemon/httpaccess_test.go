package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// Requests over TCP act as an account of the host. A daemon of root must be told which; any other has only its own
// account.
func TestHTTPRequestsActAsTheConfiguredAccount(t *testing.T) {
	self, err := api.NameOf(os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	root := os.Geteuid() == 0
	for _, c := range []struct {
		name   string
		cfg    Config
		asRoot bool
		user   string
		jobs   bool
		wrong  string // a part of the error of the settings
	}{
		{"root, nothing named", Config{HTTPToken: "f"}, true, "http", false, ""},
		{"root, named", Config{HTTPToken: "f", HTTPUser: "nobody"}, true, "nobody", true, ""},
		{"root, no such user", Config{HTTPToken: "f", HTTPUser: "no-such-user-here"}, true, "no-such-user-here", true, "no such user on this host"},
		{"root, root", Config{HTTPToken: "f", HTTPUser: "root"}, true, "root", true, "--allow-root"},
		{"root, root allowed", Config{HTTPToken: "f", HTTPUser: "root", AllowRoot: true}, true, "root", true, ""},
		{"a user, nothing named", Config{HTTPToken: "f"}, false, self, true, ""},
		{"a user, without a token", Config{}, false, "http", true, ""},
		{"a user, himself", Config{HTTPToken: "f", HTTPUser: self}, false, self, true, ""},
		{"a user, another", Config{HTTPToken: "f", HTTPUser: "nobody-else"}, false, "nobody-else", true, "runs tasks as " + self + " only"},
		{"a user who runs all", Config{HTTPToken: "f", HTTPUser: "amy", RunOthersAsMe: true}, false, "amy", true, ""},
	} {
		if c.asRoot != root {
			continue // the other half of the table needs the other kind of user
		}
		only, err := onlyUser(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		user, jobs := tcpUser(c.cfg, only)
		if user != c.user || jobs != c.jobs {
			t.Errorf("%s: got user %q, submits jobs: %v, want %q, %v", c.name, user, jobs, c.user, c.jobs)
		}
		err = c.cfg.checkHTTPUser()
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), "http-user")) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.wrong)
		}
		c.cfg.HTTP = "127.0.0.1:1"
		want := api.FactOK
		switch {
		case c.wrong != "":
			want = api.FactFail
		case !c.jobs:
			want = api.FactWarn
		}
		if f := httpFact(c.cfg); f.State != want || f.Name != "http" || f.Detail == "" {
			t.Errorf("%s: doctor: got %+v, want %s", c.name, f, want)
		}
	}
}
