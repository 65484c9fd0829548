package node

// Whose tasks this host runs, by the accounts that it has. See docs/adr, ADR 118.

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/musterhq/muster/api"
)

// The files that say which accounts are those of the system.
const (
	passwdFile    = "/etc/passwd"
	loginDefsFile = "/etc/login.defs"
	// firstUser is the first uid of people if loginDefsFile names none.
	firstUser = 1000
	// maxAccounts bounds the lines that are read.
	maxAccounts = 1 << 16
)

// onlyUser returns the user whose tasks a daemon runs, or "" if it runs those of all users. A daemon that is not root
// runs every task as its own user. So a task of someone else could read the daemon's key and act as the host.
func onlyUser(cfg Config) string {
	if os.Geteuid() == 0 || cfg.RunOthersAsMe {
		return ""
	}
	return api.UserName(os.Geteuid())
}

// notForOthers returns the accounts whose names jobs of other hosts may not use here, each with the reason: those of the
// system, and root unless its tasks are allowed. It is about daemons of root; another one cannot run tasks as them.
func notForOthers(cfg Config) (map[string]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	defs, err := os.Open(loginDefsFile)
	first := firstUser
	if err == nil {
		first = firstUserIn(defs)
		_ = defs.Close() // nothing was written to it
	}
	passwd, err := os.Open(passwdFile)
	if err != nil {
		return nil, fmt.Errorf("accounts of this host: %w", err)
	}
	defer passwd.Close()
	out := map[string]string{}
	for name, uid := range accountsIn(passwd) {
		switch {
		case uid == 0 && cfg.AllowRoot:
		case uid == 0:
			out[name] = "this node runs no tasks of root; its daemon needs --allow-root"
		case uid < first:
			out[name] = fmt.Sprintf("user %s is an account of the system here (uid %d is below %d), so no other node may use its name", name, uid, first)
		}
	}
	return out, nil
}

// firstUserIn returns UID_MIN of a file like /etc/login.defs.
func firstUserIn(text io.Reader) int {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) >= 2 && words[0] == "UID_MIN" {
			if n, err := strconv.ParseInt(words[1], 0, 32); err == nil && n > 0 {
				return int(n)
			}
		}
	}
	return firstUser
}

// accountsIn returns the uids of a file like /etc/passwd, by name. If a name is there twice, the first line counts.
func accountsIn(text io.Reader) map[string]int {
	out := map[string]int{}
	lines := bufio.NewScanner(text)
	for n := 0; lines.Scan() && n < maxAccounts; n++ {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if _, known := out[fields[0]]; err == nil && !known {
			out[fields[0]] = int(uid)
		}
	}
	return out
}
