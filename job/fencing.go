package job

// Fencing: what is certain about an attempt whose host is silent.
// See docs/adr, ADR 175.

// Fencing is what a host says of the attempts that it gets.
type Fencing struct {
	// Certain is true if the host ends each attempt with its lease, even if its daemon and its runner are stopped, and all
	// processes of an attempt end when they are killed.
	Certain bool `json:"certain,omitempty"`
	// Boot is the ID of the boot of the host. Once the host has another one, nothing of the attempt goes on. It is empty for a
	// host of an earlier version. Such a host does not say whether Certain holds, so it counts as false.
	Boot string `json:"boot,omitempty"`
}

// Known reports whether the host says anything of it.
func (f Fencing) Known() bool { return f.Boot != "" }

// Restarted reports whether the host was booted anew between f and now.
func (f Fencing) Restarted(now Fencing) bool { return f.Known() && now.Known() && f.Boot != now.Boot }

// String returns "yes" if Certain holds, "no" if not, and "unknown" if the host does not say.
func (f Fencing) String() string {
	switch {
	case !f.Known():
		return "unknown"
	case f.Certain:
		return "yes"
	}
	return "no"
}
