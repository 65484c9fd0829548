package daemon

// Doctor: the check of the systemd service.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/musterhq/muster/api"
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
