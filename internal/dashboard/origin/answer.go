package origin

// The headers of answers to browsers.

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

// inert is the Content-Security-Policy of every answer that is not one of our pages: a browser that shows the answer runs
// nothing in it.
const inert = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"

// always are the headers of every answer to a browser.
var always = map[string]string{
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"X-Frame-Options":              "DENY",
	"Permissions-Policy":           "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), hid=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), serial=(), usb=(), xr-spatial-tracking=()",
}

// Harden completes the header of an answer to a browser. An answer without a policy gets one that lets nothing run. An
// answer without a Cache-Control is not cached.
func Harden(h http.Header) {
	for k, v := range always {
		h.Set(k, v)
	}
	if h.Get("Content-Security-Policy") == "" {
		h.Set("Content-Security-Policy", inert)
	}
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
}

// answers are the headers that an answer of another daemon keeps, in addition to muster's own headers.
var answers = []string{
	"Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Retry-After", "Trailer", "Vary",
	"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol",
}

const (
	ours     = "Muster-"
	unknown  = "application/octet-stream"
	tar      = "application/x-tar"
	fileName = "files"
)

// harmless are the types of answers that a browser shows as text, if at all.
var harmless = []string{"application/json", "application/jsonl", "application/problem+json", "application/openapi+json", "text/event-stream"}

// Clean removes from an answer of another daemon everything that could be more than data. That daemon may be hostile, and a
// browser would treat the answer as one of this server. Clean drops unknown headers, and makes a body of unknown type a
// file to be saved.
func Clean(answer *http.Response) {
	h := answer.Header
	for k := range h {
		if !slices.Contains(answers, k) && !strings.HasPrefix(k, ours) {
			delete(h, k)
		}
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case err == nil && kind == "text/plain":
		h.Set("Content-Type", "text/plain; charset=utf-8")
	case err == nil && slices.Contains(harmless, kind):
		h.Set("Content-Type", kind)
	case err == nil && kind == tar:
		Attach(h, tar, fileName+".tar")
	default:
		Attach(h, unknown, fileName)
	}
}

// Attach makes an answer a file to be saved. In its name, every character but letters, digits and ._- becomes _.
func Attach(h http.Header, kind, name string) {
	safe := strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, name)
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", `attachment; filename="`+strings.TrimLeft(safe, ".")+`"`)
}
