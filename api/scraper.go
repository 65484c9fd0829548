package api

// The token for metrics: what it opens, and that it opens nothing else.

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
)

// scraperUser is in whose name requests with that token take places. It runs nothing.
const scraperUser = "metrics"

// metricsToken is the token that reads only metrics.
type metricsToken struct {
	file   string
	digest atomic.Pointer[[]byte] // nil: there is none
}

// read reads the file again. all is the digest of the token that opens everything, which must be another one.
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

// metricsRoutes are those that the token for metrics opens, as the router names them.
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
