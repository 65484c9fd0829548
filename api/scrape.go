package api

// The metrics of all nodes, and the list of nodes for Prometheus. A Prometheus that reaches one daemon can scrape every
// node through it, even behind NAT. See docs/adr, ADR 138.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/musterhq/muster/job"
)

// Metrics collects what this daemon measures.
type Metrics interface {
	// Collect sends the present metrics. It leaves out metrics that are not available before ctx ends, and tasks of users
	// for whom sees returns false.
	Collect(ctx context.Context, sees func(user string) bool, to chan<- prometheus.Metric)
}

// Bounds of scrapes.
const (
	// scrapeWait bounds the time of another daemon's answer. The default timeout of Prometheus is 10 s.
	scrapeWait = 8 * time.Second
	// maxScrape bounds the bytes of that answer. 5,000 tasks take some 4 MB.
	maxScrape = 8 << 20
	// maxScrapeLines and maxScrapeLabels bound the memory that parsing the answer takes.
	maxScrapeLines  = 100_000
	maxScrapeLabels = 400_000
	// maxReading bounds the answers that are parsed at the same time. A malicious one can take some 60 MB.
	maxReading = 2
	// maxTargets bounds the list of nodes.
	maxTargets = 10_000
)

const contentMetrics = "text/plain; version=0.0.4; charset=utf-8"

type (
	metricsInput struct {
		ID string `path:"id" maxLength:"128" doc:"The node's id, a unique part of it, or its name."`
	}
	metricsOutput struct {
		ContentType string `header:"Content-Type" hidden:"true"`
		Body        []byte
	}
	targetsInput  struct{ host string }
	targetsOutput struct{ Body []Target }
)

// Resolve implements huma.Resolver.
func (in *targetsInput) Resolve(ctx huma.Context) []error {
	in.host = ctx.Host()
	return nil
}

// Target is a group of targets, in the format of HTTP service discovery of Prometheus.
type Target struct {
	Targets []string          `json:"targets" nullable:"false" doc:"The address of this daemon, as the request names it: Prometheus scrapes all nodes there."`
	Labels  map[string]string `json:"labels" doc:"The path of the node's metrics, as __metrics_path__; its name, as instance and node; its id, as node_id."`
}

// scrapes serves metrics.
type scrapes struct {
	*daemons

	registry *prometheus.Registry
	measured Metrics // may be nil
	reading  chan struct{}
	log      *slog.Logger
}

// collect is an unchecked collector: its metrics are made for one scrape, so it cannot describe them in advance.
type collect func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (collect) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collect) Collect(ch chan<- prometheus.Metric) { c(ch) }

// here returns the present metrics of this node that the requester of ctx may see.
func (s *scrapes) here(ctx context.Context) (together, error) {
	now := prometheus.NewRegistry()
	if s.measured != nil {
		asks := requesterOf(ctx)
		sees := func(user string) bool { return asks.scraper || asks.may(partRow, &job.Job{User: user}) }
		if err := now.Register(collect(func(ch chan<- prometheus.Metric) { s.measured.Collect(ctx, sees, ch) })); err != nil {
			return nil, fmt.Errorf("api: metrics: %w", err)
		}
	}
	return together{s.registry, now}, nil
}

// together gathers from registries whose families have different names. Each registry has checked its own families;
// prometheus.Gatherers would check all of them again.
type together []prometheus.Gatherer

// Gather implements prometheus.Gatherer.
func (t together) Gather() (all []*dto.MetricFamily, err error) {
	var errs []error
	for _, g := range t {
		families, err := g.Gather()
		all, errs = append(all, families...), append(errs, err)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	for i := 1; i < len(all); i++ {
		if all[i].GetName() == all[i-1].GetName() { // families of the same name must be merged and checked
			return prometheus.Gatherers(t).Gather()
		}
	}
	return all, errors.Join(errs...)
}

// ServeHTTP serves /metrics.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, err := s.here(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	opts := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	promhttp.HandlerFor(all, opts).ServeHTTP(w, r)
}

// ofNode serves the metrics of any node. The metrics of another node are parsed and encoded again, because its daemon may be
// hostile.
func (s *scrapes) ofNode(ctx context.Context, in *metricsInput) (*metricsOutput, error) {
	m, err := s.find(ctx, in.ID)
	var text []byte
	switch {
	case err != nil:
	case m.Self:
		text, err = s.own(ctx)
	case requesterOf(ctx).from == fromPeer:
		err = &notFoundError{"node", in.ID, "the request reached the daemon of another node"}
	case m.State == NodeLost:
		err = fmt.Errorf("metrics of node %s: %w: it does not answer", m.label(), ErrUnavailable)
	default:
		text, err = s.fetch(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	return &metricsOutput{contentMetrics, text}, nil
}

func (s *scrapes) own(ctx context.Context) ([]byte, error) {
	all, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	families, err := all.Gather()
	if err != nil {
		s.log.WarnContext(ctx, "metrics are not complete", "error", err)
	}
	return written(families)
}

// fetch gets the metrics of another node.
func (s *scrapes) fetch(ctx context.Context, m Member) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	silent := func(why string) error {
		return fmt.Errorf("metrics of node %s: %w: %s", m.label(), ErrUnavailable, why)
	}
	u := url.URL{Scheme: "http", Host: string(m.Peer), Path: "/v1/nodes/" + string(m.Peer) + "/metrics"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, silent(err.Error())
	}
	setRequester(req.Header, requesterOf(ctx))
	leave, err := s.out.wait(ctx, m.Peer, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, silent(cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, silent(readProblem(resp).Error())
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxScrape+1))
	if err != nil {
		return nil, silent(cause(err))
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return nil, silent("too many answers are being read")
	}
	clean, err := cleaned(text)
	if err != nil {
		s.metrics.dropped(1)
		return nil, silent("its answer is no metrics: " + err.Error())
	}
	return clean, nil
}

// ourMetrics are the prefixes of the names of a daemon's metrics. Other metrics of another daemon are dropped.
var ourMetrics = []string{"muster_", "go_", "process_", "libp2p_"}

// cleaned parses the metrics of another daemon and encodes them again, without timestamps: Prometheus uses the time of the
// scrape.
func cleaned(text []byte) ([]byte, error) {
	switch {
	case len(text) > maxScrape:
		return nil, fmt.Errorf("it has more than %s", job.Size(maxScrape))
	case bytes.Count(text, []byte("\n")) > maxScrapeLines, bytes.Count(text, []byte("=")) > maxScrapeLabels:
		return nil, fmt.Errorf("it has more than %d lines or %d labels", maxScrapeLines, maxScrapeLabels)
	}
	families, err := parsed(text)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	var out []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !slices.ContainsFunc(ourMetrics, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			continue
		}
		f := families[name]
		for _, m := range f.GetMetric() {
			if twice(m.GetLabel()) {
				return nil, fmt.Errorf("read: %s has a label twice", name)
			}
			m.TimestampMs = nil
		}
		out = append(out, f)
	}
	return written(out)
}

// twice reports whether two labels have the same name. The parser does not catch all of these: a series without a name gets
// the labels of the series before it.
func twice(labels []*dto.LabelPair) bool {
	seen := make(map[string]bool, len(labels))
	for _, l := range labels {
		if seen[l.GetName()] {
			return true
		}
		seen[l.GetName()] = true
	}
	return false
}

// parsed parses metrics. It recovers from panics of the parser, which some invalid texts cause, such as a type followed by
// an empty name.
func parsed(text []byte) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if why := recover(); why != nil {
			families, err = nil, fmt.Errorf("the parser gave up: %v", why)
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// written returns metrics as text.
func written(families []*dto.MetricFamily) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			return nil, fmt.Errorf("write %.80q: %w", f.GetName(), err)
		}
	}
	return out.Bytes(), nil
}

// list lists all nodes for Prometheus.
func (s *scrapes) list(ctx context.Context, in *targetsInput) (*targetsOutput, error) {
	members, err := s.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	out := &targetsOutput{Body: make([]Target, 0, len(members))}
	for _, m := range members {
		if len(out.Body) == maxTargets {
			s.log.WarnContext(ctx, "not all nodes are listed for metrics", "nodes", len(members), "most", maxTargets)
			break
		}
		out.Body = append(out.Body, Target{Targets: []string{in.host}, Labels: map[string]string{
			model.MetricsPathLabel: "/v1/nodes/" + url.PathEscape(string(m.Peer)) + "/metrics",
			model.InstanceLabel:    m.label(), "node": m.label(), "node_id": string(m.Peer),
		}})
	}
	slices.SortStableFunc(out.Body, func(a, b Target) int { return strings.Compare(a.Labels["node_id"], b.Labels["node_id"]) })
	return out, nil
}
