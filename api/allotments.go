package api

// What daemons tell each other of users whose tasks are limited in the cluster. See docs/adr, ADR 174.

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
	// MaxAllotments bounds the users of one message, and the entries of an answer: a daemon has one or two owners.
	MaxAllotments = 64
	// maxAllotmentBytes bounds one message.
	maxAllotmentBytes = 256 << 10
)

// Allotments keeps what is allotted to users.
type Allotments interface {
	// Allotments takes in what another daemon says of users, and returns what this one says of them.
	Allotments(ctx context.Context, from job.Peer, states []contract.Allotment) ([]contract.Allotment, error)
}

// allotmentsDocument is a message, and the answer to it. Fields that are not known are ignored: daemons of several versions use it.
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

// AskAllotments asks other daemons for what is allotted to users.
type AskAllotments struct {
	HTTP *http.Client // its transport accepts http://PEER/…
}

// Allotments tells a daemon what is allotted to users here, and returns what it answers.
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
