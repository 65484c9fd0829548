package origin

import (
	"net/http"
	"strings"
	"testing"
)

func TestHardenSetsSecurityHeaders(t *testing.T) {
	h := http.Header{"X-Content-Type-Options": {"none"}}
	Harden(h)
	for k, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
	} {
		if got := h.Get(k); got != want {
			t.Errorf("%s: got %q, want %q", k, got, want)
		}
	}
	policy := h.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "sandbox", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy is %q, want it with %s", policy, want)
		}
	}
	own := http.Header{"Content-Security-Policy": {"mine"}, "Cache-Control": {"no-cache"}}
	Harden(own)
	if own.Get("Content-Security-Policy") != "mine" || own.Get("Cache-Control") != "no-cache" {
		t.Errorf("headers of the answer itself were overwritten: %v", own)
	}
}

// An answer of a hostile daemon is data, whatever its headers say.
func TestCleanMakesHostileAnswersData(t *testing.T) {
	for kind, want := range map[string]string{
		"application/json":                     "application/json",
		"application/problem+json":             "application/problem+json",
		"application/json; charset=utf-7":      "application/json",
		"text/event-stream":                    "text/event-stream",
		"text/plain; charset=utf-7":            "text/plain; charset=utf-8",
		"application/x-tar":                    "application/x-tar, saved",
		"text/html":                            "application/octet-stream, saved",
		"TEXT/HTML; charset=utf-8":             "application/octet-stream, saved",
		"text/javascript":                      "application/octet-stream, saved",
		"image/svg+xml":                        "application/octet-stream, saved",
		"application/xhtml+xml":                "application/octet-stream, saved",
		"multipart/x-mixed-replace;boundary=x": "application/octet-stream, saved",
		"text/plain, text/html":                "application/octet-stream, saved",
		"":                                     "application/octet-stream, saved",
	} {
		a := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}, "Upgrade": {"x"}, "Muster-End": {"7"}}}
		for _, k := range []string{
			"Set-Cookie", "Location", "Refresh", "Link", "Clear-Site-Data", "Www-Authenticate", "Access-Control-Allow-Origin", "Content-Disposition",
			"Service-Worker-Allowed", "Sourcemap", "Content-Security-Policy", "X-Content-Type-Options", "Strict-Transport-Security", "Alt-Svc", "X-New",
		} {
			a.Header.Set(k, "evil")
		}
		Clean(a)
		got := a.Header.Get("Content-Type")
		if strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment;") {
			got += ", saved"
		}
		if got != want || a.Header.Get("Muster-End") != "7" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: got %q, want %q: %v", kind, got, want, a.Header)
		}
		for k, v := range a.Header {
			if v[0] == "evil" {
				t.Errorf("%s was passed on, want it removed", k)
			}
		}
	}
}

func TestAttachCleansTheFileName(t *testing.T) {
	for name, want := range map[string]string{
		"a.1.tar": "a.1.tar", "x\"; filename=\"y.html": "x___filename__y.html", "../../.bashrc": "_.._.bashrc", "a\r\nSet-Cookie: x": "a__Set-Cookie__x", "é": "_",
	} {
		h := http.Header{}
		Attach(h, "application/x-tar", name)
		if got := h.Get("Content-Disposition"); got != `attachment; filename="`+want+`"` {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}
