package api

// Listings: asking all members at once, for a bounded time.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// The bounds of asking all members.
const (
	fanWait  = time.Second // for one member; listings are looked at by people
	fanWidth = 32          // members asked at once
	fanTotal = 5 * time.Second
)

// answer is what one member said, or that it said nothing.
type answer[T any] struct {
	member Member
	value  T
	err    error
}

// ask gets one document from another daemon.
func (s *Server) ask(ctx context.Context, peer job.Peer, path string, query url.Values, out any) error {
	return s.exchange(ctx, http.MethodGet, peer, path, query, nil, out)
}

// exchange sends a request to another daemon, with the document in unless that
// is nil, and reads the document that answers it. A daemon that does not answer
// is ErrUnavailable; a *Problem is one that refuses.
func (s *Server) exchange(ctx context.Context, method string, peer job.Peer, path string, query url.Values, in, out any) error {
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
	resp, err := s.peers.Do(req)
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

// fan asks every other member for the same document. The answers are in the
// order of the members; those known to be lost are not asked.
func fan[T any](ctx context.Context, s *Server, path string, query url.Values) ([]answer[T], error) {
	if askerOf(ctx).from == fromPeer {
		return nil, nil
	}
	members, err := s.needs.Peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fanTotal)
	defer cancel()
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Self || m.Peer == s.cfg.Self })
	return askAll(ctx, members, fanWait, func(ctx context.Context, m Member) (v T, err error) {
		if m.State == NodeLost {
			return v, ErrUnavailable
		}
		err = s.ask(ctx, m.Peer, path, query, &v)
		return v, err
	}), nil
}

// askAll asks all members, fanWidth of them at once and each for no longer than
// wait. The answers are in the order of the members.
func askAll[T any](ctx context.Context, members []Member, wait time.Duration, ask func(context.Context, Member) (T, error)) []answer[T] {
	answers := make([]answer[T], len(members))
	room := make(chan struct{}, fanWidth)
	var asked sync.WaitGroup
	for i, m := range members {
		asked.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			v, err := ask(ctx, m)
			answers[i] = answer[T]{m, v, err}
		})
	}
	asked.Wait()
	return answers
}

// silent names the members that did not answer.
func silent[T any](s *Server, answers []answer[T]) []string {
	names := []string{}
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.member.label())
		}
	}
	s.metrics.silence(len(names))
	return names
}
