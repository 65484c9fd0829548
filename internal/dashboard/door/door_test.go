package door

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func nothing(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }

// A code is valid once, for a minute, until there is another, and until it was guessed at too often.
func TestCodeIsValidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nothing)
		code := s.newCode()
		if a := s.tradeFor(code); a.StatusCode != http.StatusOK || !strings.Contains(a.body, s.secret) || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("the code: got %d %s %v, want 200 with the secret", a.StatusCode, a.body, a.Header)
		}
		refused := func(what, code string) {
			t.Helper()
			if a := s.tradeFor(code); a.StatusCode != http.StatusUnauthorized || strings.Contains(a.body, s.secret) {
				t.Errorf("%s: got %d %s, want 401", what, a.StatusCode, a.body)
			}
		}
		refused("used twice", code)
		old := s.newCode()
		code = s.newCode()
		refused("the one before", old)
		time.Sleep(CodeLife - time.Second)
		if a := s.tradeFor(code); a.StatusCode != http.StatusOK {
			t.Errorf("before its end: got status %d, want 200", a.StatusCode)
		}
		code = s.newCode()
		time.Sleep(CodeLife + time.Second)
		refused("late", code)
		refused("empty", "")

		code = s.newCode()
		for range maxWrong - 1 {
			refused("guessed", code[1:])
		}
		if a := s.tradeFor(code); a.StatusCode != http.StatusOK {
			t.Errorf("after some guesses: got status %d, want 200", a.StatusCode)
		}
		code = s.newCode()
		for range maxWrong {
			refused("guessed", code[1:])
		}
		refused("after many guesses", code)
		if told := strings.Join(s.told(), "\n"); strings.Count(told, "is void") != 1 || strings.Count(told, "has used the code") != 3 {
			t.Errorf("the user was told\n%s\nwant one void code, and three that were used", told)
		}
		if got := s.reached(); len(got) > 0 {
			t.Errorf("the daemon got requests %q, want none", got)
		}
	})
}

// Without the secret there is the page, which is the same for everybody, and one answer to everything else.
func TestWithoutTheSecretOnlyThePageIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nothing)
		bodies := map[string]bool{}
		for _, path := range []string{"/v1/jobs", "/v1/jobs/x", "/v1/nothing", "/metrics", "/docsx", "/health", "/door/trade", "/door/x", "/v1/tickets", "/favicon.ico", "/v1/../v1/jobs", "/peer/v1/chunks"} {
			for _, method := range []string{"GET", "POST", "DELETE", "PUT"} {
				for _, secret := range []string{"", "Bearer ", "Bearer " + s.secret[1:], "Bearer " + s.secret + "x", "Basic " + s.secret, s.secret} {
					a := s.ask(method, path, "", "Authorization", secret, "Cookie", "secret="+s.secret)
					if a.StatusCode != http.StatusUnauthorized {
						t.Errorf("%s %s with %q: got status %d, want 401", method, path, secret, a.StatusCode)
					}
					bodies[a.body] = true
				}
			}
		}
		if len(bodies) != 1 {
			t.Errorf("got refusals %v, want the same for all", bodies)
		}
		for _, path := range []string{"/", "/jobs/x"} {
			a := s.ask("GET", path, "", "Authorization", "", "Origin", "", "Sec-Fetch-Site", "none")
			if a.StatusCode != http.StatusOK || !strings.Contains(a.Header.Get("Content-Type"), "text/html") || !strings.Contains(a.Header.Get("Content-Security-Policy"), "script-src 'self'") {
				t.Errorf("GET %s: got %d %v, want the page with its policy", path, a.StatusCode, a.Header)
			}
		}
		missing := s.ask("GET", "/nosuch", "", "Authorization", "", "Origin", "", "Sec-Fetch-Site", "none", "Accept", "text/html,*/*;q=0.8")
		if missing.StatusCode != http.StatusNotFound || !strings.Contains(missing.Header.Get("Content-Type"), "text/html") || !strings.Contains(missing.Header.Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("a missing page: got %d %v, want 404 with the policy", missing.StatusCode, missing.Header)
		}
		if a := s.ask("GET", "/nosuch", "", "Authorization", "", "Accept", "application/json"); a.StatusCode != http.StatusUnauthorized {
			t.Errorf("a program at the same address: got status %d, want 401", a.StatusCode)
		}
		if a := s.ask("GET", "/nosuch", "", "Authorization", "", "Accept", "text/html", "Sec-Fetch-Site", "cross-site"); a.StatusCode != http.StatusForbidden {
			t.Errorf("another page: got status %d, want 403", a.StatusCode)
		}
		for path, status := range map[string]int{"/docs": http.StatusOK, "/docs/manual": http.StatusOK, "/docs/search?q=jobs": http.StatusOK, "/docs/../v1/jobs": http.StatusNotFound, "/docs/%2e%2e/v1/jobs": http.StatusNotFound} {
			a := s.ask("GET", path, "", "Authorization", "", "Origin", "", "Sec-Fetch-Site", "none")
			if a.StatusCode != status || strings.Contains(a.Header.Get("Content-Security-Policy"), "unsafe") || !strings.Contains(a.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("GET %s: got %d %v, want the status of the file, with its policy", path, a.StatusCode, a.Header)
			}
			if a := s.ask("POST", path, "", "Authorization", ""); a.StatusCode != http.StatusUnauthorized {
				t.Errorf("POST %s: got status %d, want 401", path, a.StatusCode)
			}
			if a := s.ask("GET", path, "", "Authorization", "", "Sec-Fetch-Site", "cross-site"); a.StatusCode != http.StatusForbidden {
				t.Errorf("another page gets %s: status %d, want 403", path, a.StatusCode)
			}
		}
		if got := s.reached(); len(got) > 0 {
			t.Errorf("the daemon got requests %q, want none", got)
		}
	})
}

// With the secret too, each request is checked. A refused request does not reach the daemon.
func TestRequestsWithTheSecretAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nothing)
		for name, pairs := range map[string][]string{
			"a rebinding name": {"Host", "evil.example:4000", "Origin", ""}, "another port": {"Host", "127.0.0.1:4001", "Origin", ""}, "another origin": {"Origin", "http://127.0.0.1:4001"},
			"a file": {"Origin", "null"}, "across sites": {"Sec-Fetch-Site", "cross-site"}, "another port of this host": {"Sec-Fetch-Site", "same-site"},
		} {
			for _, path := range []string{"/v1/jobs", "/", "/ui/x", pathTrade, pathTickets} {
				for _, method := range []string{"GET", "POST", "DELETE"} {
					if a := s.ask(method, path, "{}", pairs...); a.StatusCode != http.StatusForbidden {
						t.Errorf("%s: %s %s: got status %d, want 403", name, method, path, a.StatusCode)
					}
				}
			}
		}
		a := s.ask("OPTIONS", "/v1/jobs", "", "Access-Control-Request-Method", "POST", "Authorization", "", "Origin", "http://evil.example")
		if a.StatusCode != http.StatusMethodNotAllowed || a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a preflight request: got %d %v, want 405", a.StatusCode, a.Header)
		}
		if got := s.reached(); len(got) > 0 {
			t.Errorf("the daemon got requests %q, want none", got)
		}
	})
}

// The daemon gets the request without the other headers of the browser. The browser gets data, whatever the daemon
// answers.
func TestDoorPassesOnRequestsWithoutBrowserHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *http.Request
		s := open(t, func(w http.ResponseWriter, r *http.Request) {
			got = r
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Muster-End", "5")
			switch r.URL.Path {
			case "/v1/evil":
				w.Header().Set("Link", "</x>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprint(w, "<script>alert(1)</script>")
			case "/v1/moved":
				http.Redirect(w, r, "http://evil.example", http.StatusFound)
			case "/v1/unknown":
				w.Header().Set("WWW-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
			default:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"x":1}`)
			}
		})
		a := s.ask("POST", "/v1/jobs/a%2Fb?x=1&y=%20", "{}", "Cookie", "a=b", "Referer", here+"/jobs", "Muster-User", "root", "Muster-Operator", "1", "Idempotency-Key", "k", "X-Forwarded-For", "1.2.3.4")
		if a.StatusCode != http.StatusOK || a.body != `{"x":1}` || a.Header.Get("Set-Cookie") != "" || a.Header.Get("Muster-End") != "5" || a.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("got %d %q %v, want the answer without its cookie", a.StatusCode, a.body, a.Header)
		}
		if got.URL.RequestURI() != "/v1/jobs/a%2Fb?x=1&y=%20" || got.Header.Get("Idempotency-Key") != "k" {
			t.Errorf("the daemon got %s %v, want the path and the listed header", got.URL.RequestURI(), got.Header)
		}
		for _, k := range []string{"Authorization", "Cookie", "Referer", "Origin", "Sec-Fetch-Site", "Muster-User", "Muster-Operator", "X-Forwarded-For"} {
			if v := got.Header.Get(k); v != "" {
				t.Errorf("the daemon got %s: %s, want nothing", k, v)
			}
		}
		evil := s.ask("GET", "/v1/evil", "")
		if !strings.HasPrefix(evil.Header.Get("Content-Disposition"), "attachment") || evil.Header.Get("Content-Type") != "application/octet-stream" || evil.Header.Get("Link") != "" {
			t.Errorf("HTML comes as %v, want a file", evil.Header)
		}
		s.browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if moved := s.ask("GET", "/v1/moved", ""); moved.Header.Get("Location") != "" {
			t.Errorf("a redirection comes as %v, want no Location", moved.Header)
		}
		if a := s.ask("GET", "/v1/unknown", ""); a.StatusCode != http.StatusBadGateway || a.Header.Get("Www-Authenticate") != "" {
			t.Errorf("the daemon's refusal of the door comes as %d %v, want 502", a.StatusCode, a.Header)
		}
	})
}

// A daemon that does not answer is distinguished from a door that does not answer.
func TestSilentDaemonIsDistinguishedFromTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		if a := s.ask("GET", "/v1/jobs", ""); a.StatusCode != http.StatusBadGateway || !strings.Contains(a.body, `"code":"unavailable"`) {
			t.Errorf("got %d %s, want 502, unavailable", a.StatusCode, a.body)
		}
	})
}

func TestAddressOfAPageHasACode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, nothing)
		if a, err := s.Address("jobs/x"); err != nil || !strings.HasPrefix(a, here+"/jobs/x#code=") {
			t.Errorf("got %s, %v, want the address of the page with a code", a, err)
		}
		if a, err := s.Address("v1/jobs"); err == nil {
			t.Errorf("got the address %s of no page, want an error", a)
		}
	})
}
