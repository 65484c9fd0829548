package api

// The token for metrics, which gives access to metrics and to nothing else.

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
)

// scraperUser is the user for whom requests with that token take slots. It has no jobs.
const scraperUser = "metrics"

// metricsToken is the token that reads only metrics.
type metricsToken struct {
	file   string
	digest atomic.Pointer[[]byte] // nil: there is none
}

// read reads the file again. all is the digest of the token that opens everything; the two tokens must differ.
func (t *metricsToken) read(all *[]byte) error {
	if t.file == "" {
		return nil
	}
	digest, err := tokenDigest(t.file)
	switch {
	case err != nil:
		return err
	case all != nil && bytes.Equal(digest, *all):
		return fmt.Errorf("api: token file %s: this token opens everything; make another one for metrics", t.file)
	}
	t.digest.Store(&digest)
	return nil
}

func (t *metricsToken) opens(r *http.Request) bool {
	want := t.digest.Load()
	return want != nil && bears(r, *want)
}

// metricsRoutes are the routes that the token for metrics opens, by their patterns.
var metricsRoutes = []string{"GET /metrics", "GET /v1/metrics/targets", "GET /v1/nodes/{id}/metrics"}

// maySee returns an error if the token for metrics does not open the route of a request.
func (a requester) maySee(mux *http.ServeMux, r *http.Request) error {
	if !a.scraper {
		return nil
	}
	if _, route := mux.Handler(r); !slices.Contains(metricsRoutes, route) {
		return fmt.Errorf("%w: the token for metrics reads metrics only", ErrDenied)
	}
	return nil
}
