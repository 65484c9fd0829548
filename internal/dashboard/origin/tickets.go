package origin

// Tickets: with one a page opens one WebSocket. Browsers let pages set no headers there, but protocols, so the ticket is
// one of these, and in no address.

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// Protocol is the protocol that a page names first. Its ticket follows as a protocol of its own.
	Protocol     = "muster"
	ticketPrefix = "muster.ticket."

	headerProtocol = "Sec-Websocket-Protocol"

	ticketLife = 30 * time.Second
	// maxTickets bounds those that are open. A page uses each at once.
	maxTickets = 256
)

// Tickets holds the tickets that are open; each carries a T. The zero value is ready to use. It is safe for concurrent
// use.
type Tickets[T any] struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]ticket[T] // guarded by mu: by digest, so that the time of a search tells nothing
}

type ticket[T any] struct {
	target string
	until  time.Time
	of     T
}

// Issue returns a ticket for one WebSocket to a target, the path and the query of an address; false if too many are
// open.
func (t *Tickets[T]) Issue(target string, of T) (string, bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, open := range t.open {
		if now.After(open.until) {
			delete(t.open, k)
		}
	}
	if len(t.open) >= maxTickets {
		return "", false
	}
	if t.open == nil {
		t.open = map[[sha256.Size]byte]ticket[T]{}
	}
	text := rand.Text()
	t.open[sha256.Sum256([]byte(text))] = ticket[T]{target, now.Add(ticketLife), of}
	return text, true
}

// Take uses the ticket of a WebSocket's request up, and removes it from the request. It returns false if there is none
// that is open and for this target. A ticket that is shown for another target is gone too.
func (t *Tickets[T]) Take(r *http.Request) (of T, ok bool) {
	text := shown(r)
	if text == "" {
		return of, false
	}
	r.Header.Del(headerProtocol)
	k := sha256.Sum256([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.open[k]
	delete(t.open, k)
	if !ok || found.target != r.URL.RequestURI() || time.Now().After(found.until) {
		return of, false
	}
	return found.of, true
}

// IsSocket reports whether a request opens a WebSocket, or something else that is not HTTP.
func IsSocket(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// shown returns the ticket of a request.
func shown(r *http.Request) string {
	for _, line := range r.Header.Values(headerProtocol) {
		for word := range strings.SplitSeq(line, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(word), ticketPrefix); ok {
				return text
			}
		}
	}
	return ""
}

// Agree says in the answer which protocol was chosen. Without that a browser closes the WebSocket.
func Agree(h http.Header) { h.Set(headerProtocol, Protocol) }
