package api

// Metrics of the server. A nil *metrics counts nothing.

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	streams  prometheus.Gauge
	silent   prometheus.Counter
	foreign  prometheus.Counter
	refused  prometheus.Counter
}

func newMetrics(reg *prometheus.Registry) (*metrics, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // a nil *metrics counts nothing
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_api_request_seconds", Help: "Time to the end of the answer, by route.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_api_streams", Help: "Open streams of logs and events."}),
		silent:  prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_api_silent_total", Help: "Listings that a member did not answer, counted for each member."}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_foreign_rows_total", Help: "Rows and events of members about what is not theirs, which were dropped."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_api_refused_total", Help: "Requests and connections refused because their user or daemon had too many."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.streams, m.silent, m.foreign, m.refused} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("api: metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) served(route string, status int, took time.Duration) {
	if m == nil {
		return
	}
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) stream(open float64) {
	if m != nil {
		m.streams.Add(open)
	}
}

func (m *metrics) silence(members int) {
	if m != nil {
		m.silent.Add(float64(members))
	}
}

// full counts a request or a connection that was refused because it got no slot.
func (m *metrics) full() {
	if m != nil {
		m.refused.Inc()
	}
}

// dropped counts rows that were dropped because they are not about the sending member's own node or jobs.
func (m *metrics) dropped(rows int) {
	if m != nil {
		m.foreign.Add(float64(rows))
	}
}
