// Package origin keeps web pages of other origins from an HTTP server: they can neither read from it nor act through it. The
// door of muster ui and the TCP listener of the daemon use the same rules.
//
//   - Guard checks where a request comes from, before anything else looks at it: the name by which the server was asked,
//     and what browsers say of the page. It never looks at the name of the browser.
//   - Harden sets what an answer tells a browser: that nothing in it is code, and that nobody may frame or embed it.
//   - Tickets let a page of ours open a WebSocket, to which browsers add no headers.
//
// See docs/adr, ADR 142 and 143.
package origin

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// RefusalError is the error of a request that the guard refuses.
type RefusalError struct {
	Status int
	text   string
}

func (e *RefusalError) Error() string { return e.text }

func refusal(status int, format string, args ...any) error {
	return &RefusalError{status, fmt.Sprintf(format, args...)}
}

// Guard says by which names a server is asked.
type Guard struct {
	Names     []string // host names in small letters, without a port
	Addresses bool     // any IP address is a name too: unlike a host name, nobody can make it lead elsewhere
	Port      string   // what the Host header must have; empty: any
	// Proxied are those of Names that a proxy may serve by https, although this server does not.
	Proxied []string
	// Hint says what to do about a name that is refused.
	Hint string
}

// Loopback are the names of this host that lead nowhere else.
var Loopback = []string{"127.0.0.1", "::1", "localhost"}

// methods are those that the API has. Browsers ask with OPTIONS whether a page of another origin may send a request; a
// refusal is the answer.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// Check returns a RefusalError for a request that no page of this server, and no program, would send. page says that the
// request is for a page that holds nothing of the cluster: a link on another site may lead to it.
func (g Guard) Check(r *http.Request, page bool) error {
	if !slices.Contains(methods, r.Method) {
		return refusal(http.StatusMethodNotAllowed, "method %.20q is not served", r.Method)
	}
	if !g.serves(r.Host) {
		return refusal(http.StatusForbidden, "host %.100q is not a name of this server; %s", r.Host, g.Hint)
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || (len(origins) == 1 && !g.isOrigin(origins[0], r)) {
		return refusal(http.StatusForbidden, "a web page of another origin (%.100q) may not use this server", strings.Join(origins, ", "))
	}
	switch sites := r.Header.Values("Sec-Fetch-Site"); {
	case len(sites) == 0: // not a browser, or an old one, or one that asks a name without TLS
	case len(sites) == 1 && (sites[0] == "same-origin" || sites[0] == "none"):
	case len(sites) == 1 && page && isVisit(r):
	default:
		return refusal(http.StatusForbidden, "a web page of another origin may not use this server (%.40q)", strings.Join(sites, ", "))
	}
	return nil
}

// isVisit reports whether a browser wants to show what it asks for, in a tab of its own.
func isVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

func (g Guard) serves(hostport string) bool {
	host, port := split(hostport)
	if g.Port != "" && port != g.Port {
		return false
	}
	return slices.Contains(g.Names, strings.ToLower(host)) || (g.Addresses && net.ParseIP(host) != nil)
}

// isOrigin reports whether an origin is the one of this server, by the name that the request has. The name was checked
// before.
func (g Guard) isOrigin(origin string, r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	host, _ := split(r.Host)
	proxied := r.TLS == nil && slices.Contains(g.Proxied, strings.ToLower(host)) && strings.EqualFold(origin, "https://"+r.Host)
	return strings.EqualFold(origin, scheme+r.Host) || proxied
}

// split returns the host without brackets, and the port, which may be missing.
func split(hostport string) (host, port string) {
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		return h, p
	}
	return strings.Trim(hostport, "[]"), ""
}
