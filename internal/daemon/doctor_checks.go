package daemon

// Doctor: the checks of the systemd service, of the data directory of a running daemon, and of identities that two daemons
// share.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/p2p"
)

const unitName = "muster.service"

// unitDirs returns the directories where systemd looks for units of this user, in its order.
func unitDirs() []string {
	kind, dirs := "system", []string{}
	if os.Getuid() != 0 {
		kind = "user"
		if dir, err := os.UserConfigDir(); err == nil {
			dirs = append(dirs, filepath.Join(dir, "systemd", kind))
		}
	}
	for _, top := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		dirs = append(dirs, filepath.Join(top, "systemd", kind))
	}
	return dirs
}

// serviceFact checks whether the unit is installed, and whether systemd started this process from it.
func serviceFact() api.Fact {
	f := api.Fact{Name: "service", State: api.FactOK}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		f.State, f.Detail = api.FactSkip, "this host does not run systemd"
		return f
	}
	dirs := unitDirs()
	i := slices.IndexFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, unitName))
		return err == nil
	})
	if i < 0 {
		f.State, f.Detail = api.FactWarn, unitName+" is not installed"
		f.Advice = "run `make install`, then `systemctl enable --now muster`: systemd then restarts the daemon after a crash or a reboot"
		return f
	}
	f.Detail = filepath.Join(dirs[i], unitName)
	if !serviceOfSystemd() {
		f.Detail += "; it did not start the process that makes this check"
		return f
	}
	f.Detail += "; this daemon is its main process"
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		f.Detail += ", reports its state to " + socket
	} else {
		f.State, f.Detail = api.FactWarn, f.Detail+", but no notify socket was given"
		f.Advice = "set Type=notify in the unit: without it systemd does not know when the daemon is ready"
	}
	if watchdog, err := daemon.SdWatchdogEnabled(false); err == nil && watchdog > 0 {
		f.Detail += fmt.Sprintf(", watchdog %s", watchdog)
	}
	return f
}

// dataFact checks that the files of the data directory are there. Without such a check, a daemon whose directory was
// deleted would run on with its open files, and would notice only when it cannot write.
func dataFact(d *dataFiles) api.Fact {
	f := api.Fact{Name: "data", State: api.FactOK, Detail: d.dir}
	_, err := os.Stat(filepath.Join(d.dir, "identity.key"))
	switch gone := d.look(); {
	case len(gone.own) > 0:
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s was deleted, moved or replaced while the daemon runs: what happens now is not on disk", d.dir)
		f.Advice = gone.advice()
	case gone.any():
		f.State, f.Detail = api.FactFail, fmt.Sprintf("%s: %s", d.dir, gone)
		f.Advice = gone.advice()
	case err != nil:
		f.State, f.Detail = api.FactFail, err.Error()
		f.Advice = "make the directory readable for the daemon"
	}
	return f
}

// twinFact names the identities that two running daemons were recently seen to have.
func twinFact(seen []p2p.Sighting) api.Fact {
	f := api.Fact{Name: "identities", State: api.FactOK, Detail: "no two daemons have the same"}
	if len(seen) == 0 {
		return f
	}
	s := seen[0]
	f.State, f.Detail = api.FactFail, fmt.Sprintf("two daemons with the identity %s were running: at %s and at %s", s.Peer, s.Here, s.There)
	if n := len(seen) - 1; n > 0 {
		f.Detail += fmt.Sprintf(", and of %d other identities too", n)
	}
	f.Advice = "a data directory was copied. The younger daemon stops; on its host, empty the data directory and join with a token of `muster invite`"
	return f
}

// twinDetail tells people, in a listing of nodes, that another daemon with this daemon's identity was seen. It is empty if
// none was.
func twinDetail(host *p2p.Host) string {
	for _, s := range host.Twins.Seen() {
		if s.Peer == host.Peer() {
			return fmt.Sprintf("a daemon with the same identity was at %s, and this one is at %s: muster doctor", s.There, s.Here)
		}
	}
	return ""
}
