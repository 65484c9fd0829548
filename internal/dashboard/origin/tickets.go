package origin

// Tickets, each of which lets a page open one WebSocket. For a WebSocket, browsers let pages set no headers but the
// protocols. So the page sends the ticket as a protocol, and not in the address.

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
	// maxTickets bounds the open tickets. A page uses each ticket at once.
	maxTickets = 256
)

// Tickets holds the open tickets; each carries a T. The zero value is ready to use. It is safe for concurrent use.
type Tickets[T any] struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]ticket[T] // guarded by mu: by digest, so that the time of a lookup reveals nothing
}

type ticket[T any] struct {
	target string
	until  time.Time
	of     T
}

// Issue returns a ticket for one WebSocket to a target: path and query of an address. It returns false if too many tickets
// are open.
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

// Take uses up the ticket of a WebSocket's request, and removes it from the request. It returns false if the request has no
// open ticket for its target. A ticket that is shown for another target is used up, too.
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

// shown returns the ticket that a request shows; empty if it shows none.
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

// Agree sets the chosen protocol in the header of the answer. Without it a browser closes the WebSocket.
func Agree(h http.Header) { h.Set(headerProtocol, Protocol) }
