package api

// The other daemons of the cluster: which there are, and what one of them answers.

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

// daemons finds the daemons of the cluster, asks them, and passes requests on to them.
type daemons struct {
	self    job.Peer
	peers   Peers
	http    *http.Client           // its transport takes http://PEER/...
	proxy   *httputil.ReverseProxy // likewise
	metrics *metrics
}

func newDaemons(self job.Peer, peers Peers, transport http.RoundTripper, m *metrics, log *slog.Logger) *daemons {
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &daemons{self: self, peers: peers, http: client, proxy: newProxy(transport, log), metrics: m}
}

// nameOf is what people call a daemon.
func (d *daemons) nameOf(ctx context.Context, p job.Peer) string {
	members, err := d.peers.Members(ctx)
	if err == nil {
		for _, m := range members {
			if m.Peer == p {
				return m.label()
			}
		}
	}
	return p.Short()
}

// minIDPart is the least of an id that may stand for it. All begin alike.
const minIDPart = 4

// goesBy says whether a member is meant by a name, an end of its id, or its
// beginning.
func (m Member) goesBy(text string) bool {
	id := string(m.Peer)
	return m.Name == text || len(text) >= minIDPart && (strings.HasSuffix(id, text) || strings.HasPrefix(id, text))
}

// find finds a member by its id, a part of it that no other has, or its name.
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
	ids := make([]string, 0, len(found))
	for _, m := range found {
		ids = append(ids, string(m.Peer))
	}
	return Member{}, bad("node %s: several go by that: give one of the ids %s", quote(text), strings.Join(ids, " "))
}

// ask gets one document from another daemon.
func (d *daemons) ask(ctx context.Context, peer job.Peer, path string, query url.Values, out any) error {
	return d.exchange(ctx, http.MethodGet, peer, path, query, nil, out)
}

// exchange sends a request to another daemon, with the document in unless that
// is nil, and reads the document that answers it. A daemon that does not answer
// is ErrUnavailable; a *Problem is one that refuses.
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
	setAsker(req.Header, askerOf(ctx))
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("api: ask %s for %s: %w: %s", peer.Short(), path, ErrUnavailable, cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("api: ask %s for %s: %w: %w", peer.Short(), path, ErrUnavailable, err)
	}
	return nil
}
