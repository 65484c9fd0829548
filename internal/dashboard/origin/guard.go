// Package origin protects an HTTP server from web pages of other origins: they can neither read from it nor act through it.
// Browsers send GET, forms, images and WebSockets of any page to loopback, and a page whose name resolves to 127.0.0.1 has
// our origin. The door of muster ui and the TCP listener of the daemon use the same rules, for all routes: a check in each
// route would be forgotten in one. The only exception is a link of another site to the page itself, which holds nothing of
// a cluster.
//
//   - Guard checks where a request comes from, before anything else handles it. It checks the host name in the request, and
//     the headers in which browsers describe the page. It ignores the name of the browser.
//   - Harden sets the headers of an answer to a browser, so that nothing in it is run, and no page may frame or embed it.
//   - Tickets let our pages open WebSockets, for which pages cannot set headers.
//
// No other origin is allowed by CORS, because nobody needs it. There is no HSTS: it would hold for all ports of a host. The
// daemon makes no certificate for itself: browsers would warn of it, and people would learn to go on.
//
// See docs/adr, ADR 142.
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

// Guard has the names of a server, and checks requests.
type Guard struct {
	Names     []string // host names in small letters, without a port
	Addresses bool     // any IP address is accepted as a name: unlike a host name, nobody can make it resolve to this server
	Port      string   // the port that the Host header must have; empty: any
	// Proxied are those of Names under which a proxy may serve https, although this server does not.
	Proxied []string
	// Hint says what a user can do about a refused name.
	Hint string
}

// Loopback are the names that always mean this host.
var Loopback = []string{"127.0.0.1", "::1", "localhost"}

// methods are the methods of the API. OPTIONS is refused: with it browsers ask whether a page of another origin may send a
// request.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// Check returns a RefusalError for a request that neither a page of this server nor a program would send. page says that
// the request is for a page that holds no data of the cluster: links on other sites may lead to such a page.
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
	case len(sites) == 0: // not a browser, or an old one, or one that uses a host name without TLS
	case len(sites) == 1 && (sites[0] == "same-origin" || sites[0] == "none"):
	case len(sites) == 1 && page && isVisit(r):
	default:
		return refusal(http.StatusForbidden, "a web page of another origin may not use this server (%.40q)", strings.Join(sites, ", "))
	}
	return nil
}

// isVisit reports whether a browser navigates to the page, so as to show it in a tab.
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

// isOrigin reports whether an origin is that of this server, under the host name of the request. The caller has checked that
// name.
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
