package origin

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// ask returns a request as a page of http://127.0.0.1:4000 sends it, changed by pairs of header and value; "" removes
// one, and a value with a bar is two headers.
func ask(t *testing.T, method string, pairs ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/v1/jobs", nil)
	r.Host = "127.0.0.1:4000"
	r.Header = http.Header{
		"Origin": {"http://127.0.0.1:4000"}, "Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"},
		"User-Agent": {"any"},
	}
	for i := 0; i < len(pairs); i += 2 {
		k, v := pairs[i], pairs[i+1]
		switch {
		case k == "Host":
			r.Host = v
		case v == "":
			r.Header.Del(k)
		default:
			r.Header.Set(k, v)
		}
	}
	return r
}

func status(err error) int {
	if no, ok := errors.AsType[*RefusalError](err); ok {
		return no.Status
	}
	if err != nil {
		return -1
	}
	return http.StatusOK
}

// Each check is needed: a request with one wrong part is refused.
func TestGuardRefusesRequestsOfOtherOrigins(t *testing.T) {
	door := Guard{Names: Loopback, Port: "4000"}
	for name, c := range map[string]struct {
		method string
		change []string
		want   int
	}{
		"a page of ours":                  {"POST", nil, 200},
		"the same, which reads":           {"GET", []string{"Origin", ""}, 200},
		"by the other names":              {"GET", []string{"Host", "localhost:4000", "Origin", "http://localhost:4000"}, 200},
		"by IPv6":                         {"GET", []string{"Host", "[::1]:4000", "Origin", "http://[::1]:4000"}, 200},
		"a typed address":                 {"GET", []string{"Origin", "", "Sec-Fetch-Site", "none"}, 200},
		"a program":                       {"DELETE", []string{"Origin", "", "Sec-Fetch-Site", ""}, 200},
		"HEAD":                            {"HEAD", nil, 200},
		"a preflight":                     {"OPTIONS", nil, 405},
		"TRACE":                           {"TRACE", nil, 405},
		"PATCH":                           {"PATCH", nil, 405},
		"an unknown method":               {"get", nil, 405},
		"a rebinding name":                {"GET", []string{"Host", "evil.example:4000", "Origin", "http://evil.example:4000"}, 403},
		"a rebinding name, silent":        {"GET", []string{"Host", "evil.example:4000", "Origin", "", "Sec-Fetch-Site", ""}, 403},
		"a name below ours":               {"GET", []string{"Host", "127.0.0.1.evil.example:4000"}, 403},
		"a name that ends as ours":        {"GET", []string{"Host", "evil.localhost:4000"}, 403},
		"another address of loopback":     {"GET", []string{"Host", "127.0.0.2:4000", "Origin", ""}, 403},
		"another address":                 {"GET", []string{"Host", "10.0.0.1:4000", "Origin", ""}, 403},
		"another port in Host":            {"GET", []string{"Host", "127.0.0.1:4001", "Origin", ""}, 403},
		"no port in Host":                 {"GET", []string{"Host", "127.0.0.1", "Origin", ""}, 403},
		"no Host":                         {"GET", []string{"Host", "", "Origin", ""}, 403},
		"another origin":                  {"GET", []string{"Origin", "http://evil.example"}, 403},
		"another port":                    {"POST", []string{"Origin", "http://127.0.0.1:4001"}, 403},
		"another name of ours":            {"POST", []string{"Origin", "http://localhost:4000"}, 403},
		"another scheme":                  {"POST", []string{"Origin", "https://127.0.0.1:4000"}, 403},
		"a file, or a frame in a sandbox": {"POST", []string{"Origin", "null"}, 403},
		"an origin with more behind it":   {"POST", []string{"Origin", "http://127.0.0.1:4000.evil.example"}, 403},
		"across sites":                    {"GET", []string{"Origin", "", "Sec-Fetch-Site", "cross-site"}, 403},
		"another port of this host":       {"GET", []string{"Origin", "", "Sec-Fetch-Site", "same-site"}, 403},
		"a site that there is not":        {"GET", []string{"Origin", "", "Sec-Fetch-Site", "x"}, 403},
		"a visit of what is not the page": {"GET", []string{"Origin", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		"any browser, by its name":        {"GET", []string{"User-Agent", "curl/8"}, 200},
		"no browser, by its name":         {"GET", []string{"User-Agent", "Mozilla/5.0 Chrome/150", "Origin", "", "Sec-Fetch-Site", ""}, 200},
	} {
		if got := status(door.Check(ask(t, c.method, c.change...), false)); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
		r := ask(t, "GET")
		r.Header.Add(header, r.Header.Get(header))
		if got := status(door.Check(r, false)); got != http.StatusForbidden {
			t.Errorf("two headers %s: got %d, want 403", header, got)
		}
	}
}

// A link on another site may lead to the page, in a tab of its own. The other site may not embed the page, or send it
// anything.
func TestLinkFromAnotherSiteMayOnlyOpenThePage(t *testing.T) {
	door := Guard{Names: Loopback, Port: "4000"}
	link := []string{"Origin", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for name, c := range map[string]struct {
		method string
		change []string
		want   int
	}{
		"a link":                    {"GET", nil, 200},
		"a form":                    {"POST", nil, 403},
		"a frame":                   {"GET", []string{"Sec-Fetch-Dest", "iframe"}, 403},
		"an image":                  {"GET", []string{"Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		"a fetch":                   {"GET", []string{"Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		"by a name that leads here": {"GET", []string{"Host", "evil.example:4000"}, 403},
	} {
		if got := status(door.Check(ask(t, c.method, append(append([]string{}, link...), c.change...)...), true)); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// A daemon with a token answers at its addresses and at the names in its settings.
func TestGuardAcceptsTheDaemonsNames(t *testing.T) {
	g := Guard{Names: append([]string{"gpu.example"}, Loopback...), Addresses: true, Proxied: []string{"gpu.example"}}
	for name, c := range map[string]struct {
		host, origin string
		secure       bool
		want         int
	}{
		"an address":                   {"10.0.0.1:80", "http://10.0.0.1:80", false, 200},
		"IPv6":                         {"[fd00::1]:80", "http://[fd00::1]:80", false, 200},
		"a name":                       {"GPU.example", "http://gpu.example", false, 200},
		"a name behind a proxy":        {"gpu.example", "https://gpu.example", false, 200},
		"an address behind a proxy":    {"10.0.0.1", "https://10.0.0.1", false, 403},
		"TLS":                          {"gpu.example:8443", "https://gpu.example:8443", true, 200},
		"TLS, asked by a plain page":   {"gpu.example:8443", "http://gpu.example:8443", true, 403},
		"a name that it does not have": {"other.example", "http://other.example", false, 403},
		"a number as a name":           {"2130706433", "http://2130706433", false, 403},
	} {
		r := ask(t, "POST", "Host", c.host, "Origin", c.origin)
		if c.secure {
			r.TLS = &tls.ConnectionState{}
		}
		if got := status(g.Check(r, false)); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
