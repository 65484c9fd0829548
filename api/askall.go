package api

// Listings: asking all members at once, for a bounded time.

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Bounds of asking all members.
const (
	fanWait  = time.Second // for the answer of one member; short, because people wait for listings
	fanWidth = 32          // members that are asked at once
	fanTotal = 5 * time.Second
)

// answer is what one member answered, or the error.
type answer[T any] struct {
	member Member
	value  T
	err    error
}

// fan requests the same document from every other member. The answers are in the order of the members. Lost members are
// not asked; their answer is ErrUnavailable.
func fan[T any](ctx context.Context, d *daemons, path string, query url.Values) ([]answer[T], error) {
	members, err := d.others(ctx)
	if err != nil {
		return nil, err
	}
	return askThem[T](ctx, d, members, path, query), nil
}

// others returns the other members. It returns none if another daemon made the request: that daemon asks them itself.
func (d *daemons) others(ctx context.Context) ([]Member, error) {
	if requesterOf(ctx).from == fromPeer {
		return nil, nil
	}
	members, err := d.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Self || m.Peer == d.self }), nil
}

// askThem is fan for some members.
func askThem[T any](ctx context.Context, d *daemons, members []Member, path string, query url.Values) []answer[T] {
	ctx, cancel := context.WithTimeout(ctx, fanTotal)
	defer cancel()
	return askAll(ctx, members, fanWait, func(ctx context.Context, m Member) (v T, err error) {
		if m.State == NodeLost {
			return v, ErrUnavailable
		}
		err = d.ask(ctx, m.Peer, path, query, &v)
		return v, err
	})
}

// askAll asks all members, fanWidth of them at once, each for no longer than wait. The answers are in the order of
// the members.
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

// silent returns the names of the members that did not answer.
func silent[T any](d *daemons, answers []answer[T]) []string {
	names := []string{}
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.member.label())
		}
	}
	d.metrics.silence(len(names))
	return names
}
