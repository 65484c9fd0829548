// Package metrics says what a daemon measures, in the format of Prometheus. A Sample is what is known at the time of a
// scrape. The series are made from it at each scrape, so what has ended or is unknown has no series.
//
// Labels are bounded. A series names a GPU of this host, a state, or a result; only those of tasks that run here name a job,
// a task and its user, and their number is bounded. A scrape is of one daemon, so no series names a node. See docs/adr,
// ADR 138.
package metrics

import (
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// NewRegistry returns a registry with the metrics of the process and of the Go runtime, and with the version of muster.
func NewRegistry(version string) *prometheus.Registry {
	revision, goVersion := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		constant{prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, version, revision, goVersion)},
	)
	return reg
}

var buildInfo = describe("muster_build_info", "The program: its value is 1.", "version", "revision", "goversion")

// constant is a collector of one metric.
type constant struct{ prometheus.Metric }

// Describe implements prometheus.Collector.
func (c constant) Describe(ch chan<- *prometheus.Desc) { ch <- c.Desc() }

// Collect implements prometheus.Collector.
func (c constant) Collect(ch chan<- prometheus.Metric) { ch <- c.Metric }

// NewJournalSeconds returns the histogram of the times that the journal takes to commit.
func NewJournalSeconds() prometheus.Histogram { //nolint:ireturn // the type that prometheus has
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "muster_journal_commit_seconds", Help: "Time from the proposal of records about jobs until they are on disk and count.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// sink takes the metrics of a scrape.
type sink chan<- prometheus.Metric

// pairs are labels with their values. All series about the same thing share them.
type pairs []*dto.LabelPair

// pairsOf returns the labels of a series, which all series with the same labels can share.
func pairsOf(d *prometheus.Desc, values ...string) pairs {
	return prometheus.MakeLabelPairs(d, valid(values))
}

// value is the value of one series.
type value struct {
	desc    *prometheus.Desc
	counter bool
	value   float64
	labels  pairs
}

// Desc implements prometheus.Metric.
func (v *value) Desc() *prometheus.Desc { return v.desc }

// Write implements prometheus.Metric.
func (v *value) Write(to *dto.Metric) error {
	to.Label = v.labels
	if v.counter {
		to.Counter = &dto.Counter{Value: &v.value}
	} else {
		to.Gauge = &dto.Gauge{Value: &v.value}
	}
	return nil
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- &value{d, false, v, pairsOf(d, labels...)}
}

func (s sink) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- &value{d, true, v, pairsOf(d, labels...)}
}

// gaugeOf and counterOf send series whose labels are made.
func (s sink) gaugeOf(l pairs, d *prometheus.Desc, v float64) { s <- &value{d, false, v, l} }

func (s sink) counterOf(l pairs, d *prometheus.Desc, v float64) { s <- &value{d, true, v, l} }

func (s sink) histogram(d *prometheus.Desc, h Histogram) {
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	if len(h.Counts) > len(h.Bounds) {
		n += h.Counts[len(h.Bounds)]
	}
	s <- prometheus.MustNewConstHistogram(d, n, h.Sum, buckets)
}

// valid replaces bytes that are not UTF-8, because Prometheus would refuse the whole scrape.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
