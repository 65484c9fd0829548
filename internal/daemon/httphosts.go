package daemon

// The names by which the API may be asked over TCP.

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

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

// httpHosts returns the names by which the API may be asked over TCP, besides those of loopback. Those of this host count
// if there is a token: in some networks a stranger can say where they lead.
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
