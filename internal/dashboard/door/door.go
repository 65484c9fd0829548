// Package door lets the user's browser use a daemon. The door is a process of the user, started by muster ui. It listens on
// loopback, and forwards requests to the daemon's socket with the user's own rights. It ends when the user ends it.
//
// All users of a host can reach its loopback ports, and so can web pages in any browser there. Hence:
//
//   - The user gets an address with a code in its fragment, which browsers do not send to servers. A page exchanges the
//     code for the secret: only once, and within a minute. See code.go.
//   - Each request must show the secret in a header, and each WebSocket a ticket. There are no cookies, because all ports of
//     a host share them. Without the secret there is only the page itself, which holds no data of the cluster. See
//     handler.go.
//   - Package origin checks the host name and the origin of each request. It also sets the headers of answers, so that
//     browsers run nothing in them.
//   - Connections, headers and times are bounded. See listen.go.
//
// See docs/adr, ADR 142.
package door

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/internal/dashboard/ui"
)

// Config configures a door.
type Config struct {
	Port    int               // 0: any free port
	To      http.RoundTripper // carries requests to the daemon; its errors are lines for people
	Version string            // of the documentation
	Notice  func(text string) // shows a message to the user; called from any goroutine
}

// Door is the server for a browser. Its port is open from New on.
type Door struct {
	guard   origin.Guard
	lists   []net.Listener
	secret  string
	digest  [sha256.Size]byte // of the secret
	docs    http.Handler
	code    code
	tickets origin.Tickets[struct{}]
	proxy   *httputil.ReverseProxy
	notice  func(string)
}

// Bounds of the door.
const (
	maxHeader     = 64 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second // for a body of a request without the secret
	idleTimeout   = 2 * time.Minute
	writeWait     = 30 * time.Second // a browser tab that reads nothing for this time is disconnected
	stopWait      = time.Second
	maxPort       = 1<<16 - 1
)

// New opens the port of a door.
func New(ctx context.Context, cfg Config) (*Door, error) {
	if cfg.Port < 0 || cfg.Port > maxPort {
		return nil, fmt.Errorf("port %d: want a number from 1 to %d", cfg.Port, maxPort)
	}
	lists, err := listen(ctx, cfg.Port)
	if err != nil {
		return nil, err
	}
	return behind(cfg, lists), nil //nolint:contextcheck // the documentation is made for all requests
}

// behind returns a door for open listeners that have the same port.
func behind(cfg Config, lists []net.Listener) *Door {
	d := &Door{
		guard:  origin.Guard{Names: origin.Loopback, Port: strconv.Itoa(portOf(lists[0])), Hint: "open the address that muster ui prints"},
		lists:  lists,
		secret: rand.Text() + rand.Text(), notice: cfg.Notice, proxy: newProxy(cfg.To), docs: api.Docs(cfg.Version),
	}
	d.digest = sha256.Sum256([]byte(d.secret))
	return d
}

// Address returns the address of a page, with a new code. The code of the previous address becomes void. page begins with
// one of ui.Pages.
func (d *Door) Address(page string) (string, error) {
	if !ui.IsPage("/" + page) {
		return "", fmt.Errorf("page %.100q: there is no such page", page)
	}
	return "http://127.0.0.1:" + d.guard.Port + "/" + page + "#code=" + d.code.fresh(), nil
}

// Run serves until ctx ends.
func (d *Door) Run(ctx context.Context) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler:     d,
		BaseContext: func(net.Listener) context.Context { return base }, ConnContext: remember,
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	places := newPlaces()
	failed := make(chan error, len(d.lists))
	for _, l := range d.lists {
		go func() { failed <- server.Serve(bounded{l, places}) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop() // ends streams
	late, cancel := context.WithTimeout(base, stopWait)
	defer cancel()
	if server.Shutdown(late) != nil {
		_ = server.Close() // cuts off the rest, because the process ends
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}
