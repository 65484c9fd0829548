package api

// The messages by which owners agree on allotments: what each user may start under a limit for all hosts together. See
// docs/adr, ADR 174.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

const (
	pathAllotments = "/peer/v1/allotments"
	// MaxAllotments bounds the users in one request. The answer has at most twice as many entries, because a daemon has one
	// or two owners.
	MaxAllotments = 64
	// maxAllotmentBytes bounds one message.
	maxAllotmentBytes = 256 << 10
)

// Allotments keeps the allotments of users.
type Allotments interface {
	// Allotments stores another daemon's states of users, and returns this daemon's states of the same users.
	Allotments(ctx context.Context, from job.Peer, states []contract.Allotment) ([]contract.Allotment, error)
}

// allotmentsDocument is a request, and its answer. Unknown fields are ignored, because daemons of several versions exchange
// it.
type allotmentsDocument struct {
	Allotments []contract.Allotment `json:"allotments"`
}

type (
	allotmentsInput struct {
		RawBody []byte `contentType:"application/json"`
	}
	allotmentsOutput struct{ Body allotmentsDocument }
)

// allotmentRoutes serves the route.
type allotmentRoutes struct{ allotments Allotments }

func (r *allotmentRoutes) swap(ctx context.Context, in *allotmentsInput) (*allotmentsOutput, error) {
	var said allotmentsDocument
	if len(in.RawBody) > maxAllotmentBytes {
		return nil, bad("allotments: %d bytes; at most %d", len(in.RawBody), maxAllotmentBytes)
	}
	if err := json.Unmarshal(in.RawBody, &said); err != nil {
		return nil, bad("allotments: %w", err)
	}
	if n := len(said.Allotments); n > MaxAllotments {
		return nil, bad("allotments of %d users; at most %d", n, MaxAllotments)
	}
	out, err := r.allotments.Allotments(ctx, requesterOf(ctx).daemon, said.Allotments)
	if err != nil {
		return nil, err
	}
	return &allotmentsOutput{allotmentsDocument{out}}, nil
}

// AskAllotments exchanges allotments with other daemons.
type AskAllotments struct {
	HTTP *http.Client // its transport accepts http://PEER/…
}

// Allotments sends this daemon's states of users to another daemon, and returns the states that it answers.
func (a AskAllotments) Allotments(ctx context.Context, p job.Peer, states []contract.Allotment) ([]contract.Allotment, error) {
	body, err := json.Marshal(allotmentsDocument{states})
	if err != nil {
		return nil, fmt.Errorf("api: ask %s what is allotted: %w", p.Short(), err)
	}
	u := url.URL{Scheme: "http", Host: string(p), Path: pathAllotments}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("api: ask %s what is allotted: %w", p.Short(), err)
	}
	req.Header.Set("Content-Type", "application/json")
	setRequester(req.Header, requester{})
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("api: ask %s what is allotted: %w", p.Short(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, readProblem(resp)
	}
	var said allotmentsDocument
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAllotmentBytes)).Decode(&said); err != nil {
		return nil, fmt.Errorf("api: ask %s what is allotted: %w", p.Short(), err)
	}
	return said.Allotments[:min(len(said.Allotments), 2*MaxAllotments)], nil
}
