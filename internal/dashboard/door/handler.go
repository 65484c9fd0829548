package door

// The requests of browsers, and what each must show.

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/internal/dashboard/ui"
	"github.com/musterhq/muster/internal/docsite"
	"github.com/musterhq/muster/internal/forward"
)

const (
	pathTrade   = "/door/trade"
	pathTickets = "/v1/tickets"
	maxAsked    = 4 << 10  // bytes of the bodies that the door itself reads
	maxBody     = 64 << 20 // bytes of all other bodies; the daemon has a bound for each route
)

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: plain, control: http.NewResponseController(plain)}
	if r.ContentLength != 0 {
		_ = w.control.SetReadDeadline(time.Now().Add(bodyTimeout)) // TCP connections support it
	}
	path := r.URL.Path
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if err := d.guard.Check(r, reads && (ui.IsPage(path) || ui.IsMissing(r) || docsite.Serves(path))); err != nil {
		status := http.StatusForbidden
		if no, ok := errors.AsType[*origin.RefusalError](err); ok {
			status = no.Status
		}
		refuse(w, status, "denied", err.Error())
		return
	}
	switch {
	case reads && ui.Serves(path) && !origin.IsSocket(r):
		ui.Serve(w, r)
	case reads && docsite.Serves(path) && !origin.IsSocket(r):
		d.docs.ServeHTTP(w, r)
	case ui.IsMissing(r) && !origin.IsSocket(r):
		ui.ServeMissing(w, r)
	case path == pathTrade:
		d.trade(w, r)
	case origin.IsSocket(r):
		d.socket(w, r)
	case !d.isIn(r):
		unauthorized(w)
	case path == pathTickets:
		d.ticket(w, r)
	default:
		_ = w.control.SetReadDeadline(time.Time{})
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		d.proxy.ServeHTTP(w, r)
	}
}

// isIn reports whether a request shows the secret.
func (d *Door) isIn(r *http.Request) bool {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	digest := sha256.Sum256([]byte(text))
	if !ok || subtle.ConstantTimeCompare(digest[:], d.digest[:]) != 1 {
		return false
	}
	trust(r.Context())
	return true
}

// trade answers the code with the secret.
func (d *Door) trade(w *answer, r *http.Request) {
	var asked struct {
		Code string `json:"code"`
	}
	if r.Method != http.MethodPost || !read(w, r, &asked) {
		unauthorized(w)
		return
	}
	good, void := d.code.use(asked.Code)
	if void {
		d.notice("somebody has tried wrong codes, so the code is void; press Enter for another one")
	}
	if !good {
		unauthorized(w)
		return
	}
	d.notice("a browser has used the code; if it was not yours, press Ctrl-C")
	write(w, http.StatusOK, map[string]string{"secret": d.secret})
}

// ticket issues a ticket for one WebSocket.
func (d *Door) ticket(w *answer, r *http.Request) {
	var asked struct {
		Target string `json:"target"`
	}
	if r.Method != http.MethodPost || !read(w, r, &asked) || !strings.HasPrefix(asked.Target, "/v1/") {
		refuse(w, http.StatusUnprocessableEntity, "bad-request", "ticket: want POST with {\"target\": \"/v1/…\"}")
		return
	}
	text, ok := d.tickets.Issue(asked.Target, struct{}{})
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too-many", "ticket: as many tickets are open as there may be; try again in half a minute")
		return
	}
	write(w, http.StatusCreated, map[string]string{"ticket": text})
}

// socket forwards a WebSocket of a page that shows a ticket.
func (d *Door) socket(w *answer, r *http.Request) {
	if _, ok := d.tickets.Take(r); !ok || r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Origin") == "" {
		unauthorized(w)
		return
	}
	trust(r.Context())
	origin.Agree(w.Header())
	d.proxy.ServeHTTP(w, r)
}

// read decodes a small document. It requires a Content-Type that forms and simple requests of other pages cannot have.
func read(w *answer, r *http.Request, doc any) bool {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	return err == nil && json.Unmarshal(text, doc) == nil
}

func write(w *answer, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // if the browser is gone the error does not matter
}

// unauthorized refuses a request without the secret. It does not say why.
func unauthorized(w *answer) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="muster ui"`)
	refuse(w, http.StatusUnauthorized, "unauthorized", "press Enter where muster ui runs, and open the address that it prints")
}

// refuse answers with a problem document, as the daemon does.
func refuse(w *answer, status int, code, detail string) {
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// if the browser is gone the error does not matter
	_ = json.NewEncoder(w).Encode(api.Problem{Type: "urn:muster:problem:" + code, Title: http.StatusText(status), Status: status, Detail: detail, Code: code})
}

func newProxy(daemon http.RoundTripper) *httputil.ReverseProxy {
	return forward.New(forward.Rules{
		Transport: daemon,
		To: func(r *http.Request) *url.URL {
			return &url.URL{Scheme: "http", Host: "muster", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
		},
		Headers: []string{"Accept", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-Id"},
		Check: func(answer *http.Response) error {
			if answer.StatusCode == http.StatusUnauthorized {
				answer.StatusCode = http.StatusBadGateway // the browser is authorized here; the daemon does not authorize the door
			}
			return nil
		},
		Failed: func(w http.ResponseWriter, _ *http.Request, err error) {
			out, ok := w.(*answer)
			if !ok {
				panic(http.ErrAbortHandler)
			}
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				refuse(out, http.StatusRequestEntityTooLarge, "too-large", "the request is larger than a door passes on; use the command line")
				return
			}
			refuse(out, http.StatusBadGateway, "unavailable", err.Error()) // not 503, which a daemon answers about another one
		},
		Chunk: 32 << 10,
		Log:   slog.New(slog.DiscardHandler),
	})
}

// answer hardens the header of an answer, and ends the connection of a browser that does not read.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// Unwrap is for http.ResponseController.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header. It drops informational (1xx) answers.
func (w *answer) WriteHeader(status int) {
	if status/100 == 1 && status != http.StatusSwitchingProtocols {
		return
	}
	if !w.begun {
		w.begun = true
		origin.Harden(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sets a deadline for each write.
func (w *answer) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(writeWait)) // TCP connections support it
	return w.ResponseWriter.Write(b)
}
