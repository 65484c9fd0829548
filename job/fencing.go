package job

// Fencing: what is certain about an attempt whose host is silent.
// See docs/adr, ADR 175.

// Fencing is what a host reports about how its attempts end.
type Fencing struct {
	// Certain is true if two things hold. The host ends each attempt when its lease expires, even if its daemon and its
	// runner are stopped. And a kill ends all processes of an attempt.
	Certain bool `json:"certain,omitempty"`
	// Boot is the boot ID of the host. Once the host has another boot ID, no process of the attempt runs any more. It
	// is empty for a host of an earlier version. Such a host does not report Certain, so Certain counts as false.
	Boot string `json:"boot,omitempty"`
}

// Known reports whether the host has reported its fencing.
func (f Fencing) Known() bool { return f.Boot != "" }

// Restarted reports whether the host was rebooted between f and now.
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
