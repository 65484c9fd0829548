package api

// The other daemons of the cluster: finding them and sending them requests.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/musterhq/muster/job"
)

// daemons finds the daemons of the cluster, sends them requests, and forwards requests to them.
type daemons struct {
	self    job.Peer
	peers   Peers
	clocks  Clocks                 // nil: all clocks are taken to be right
	http    *http.Client           // its transport accepts http://PEER/...
	proxy   *httputil.ReverseProxy // its transport accepts http://PEER/...
	metrics *metrics
	out     outbound
	changes changes
}

func newDaemons(self job.Peer, peers Peers, transport http.RoundTripper, m *metrics, log *slog.Logger) *daemons {
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &daemons{self: self, peers: peers, http: client, proxy: newProxy(transport, log), metrics: m}
}

// ahead returns by how many seconds the clock of another daemon is ahead; 0 if that is not known.
func (d *daemons) ahead(p job.Peer) float64 {
	if d.clocks == nil {
		return 0
	}
	return d.clocks.Ahead(p).Seconds()
}

// nameOf returns the name of a daemon for people.
func (d *daemons) nameOf(p job.Peer) string {
	return Member{Peer: p, Name: d.peers.NameOf(p)}.label()
}

// minIDPart is the smallest number of characters that may abbreviate an ID.
const minIDPart = 4

// goesBy reports whether text names the member: it is its name, or its ID ends or begins with it.
func (m Member) goesBy(text string) bool {
	id := string(m.Peer)
	return m.Name == text || len(text) >= minIDPart && (strings.HasSuffix(id, text) || strings.HasPrefix(id, text))
}

// find finds a member by its ID, a unique part of its ID, or its name.
func (d *daemons) find(ctx context.Context, text string) (Member, error) {
	members, err := d.peers.Members(ctx)
	if err != nil {
		return Member{}, err
	}
	var found []Member
	for _, m := range members {
		if string(m.Peer) == text {
			m.Self = m.Self || m.Peer == d.self
			return m, nil
		}
		if m.goesBy(text) {
			m.Self = m.Self || m.Peer == d.self
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return Member{}, &notFoundError{"node", text, "`muster nodes` lists them"}
	case 1:
		return found[0], nil
	}
	return Member{}, means("node", text, found, "give its id")
}

// ask gets one document from another daemon.
func (d *daemons) ask(ctx context.Context, peer job.Peer, path string, query url.Values, out any) error {
	return d.exchange(ctx, http.MethodGet, peer, path, query, nil, out)
}

// exchange sends a request to another daemon, with the document in unless it is nil, and decodes the answer into out. It
// returns ErrUnavailable if the daemon does not answer, and a *Problem if it refuses.
func (d *daemons) exchange(ctx context.Context, method string, peer job.Peer, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("api: ask %s: %w", peer.Short(), err)
		}
	}
	u := url.URL{Scheme: "http", Host: string(peer), Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("api: ask %s: %w", peer.Short(), err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	setRequester(req.Header, requesterOf(ctx))
	leave, err := d.out.wait(ctx, peer, false)
	if err != nil {
		return fmt.Errorf("api: ask %s for %s: %w", peer.Short(), path, err)
	}
	defer leave()
	if method != http.MethodGet {
		defer d.changes.sent(peer)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("api: ask %s for %s: %w: %s", peer.Short(), path, ErrUnavailable, cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	if h, ok := out.(interface{ readHeader(h http.Header) }); ok {
		h.readHeader(resp.Header)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("api: ask %s for %s: %w: %w", peer.Short(), path, ErrUnavailable, err)
	}
	return nil
}
