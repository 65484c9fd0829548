package resources

// Usage: what users and projects have used of this host, as it is saved for the next run of the daemon.

import (
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/worker/leaseclock"
)

// Usage is what is saved. At and Wall are both clocks at the time of writing; see Quarantine.
type Usage struct {
	Boot    string              `json:"boot"`
	At      leaseclock.BootTime `json:"at"`
	Wall    time.Time           `json:"wall"`
	Entries []fairshare.Entry   `json:"entries,omitempty"`
}

// away returns how long ago it was saved. It is never below 0: if the wall clock was set back, nothing decays. If it was
// set forward, the usage of all decays alike.
func (u *Usage) away(now leaseclock.Moment, boot string) time.Duration {
	d := now.Wall.Sub(u.Wall)
	if u.Boot == boot {
		d = now.Boot.Sub(u.At)
	}
	return max(d, 0)
}
