package report

import "github.com/musterhq/muster/internal/sim/record"

// Tee is a record.Sink that passes each record to several sinks, in this order.
type Tee []record.Sink

// Take passes the record on.
func (t Tee) Take(r record.Record) {
	for _, s := range t {
		s.Take(r)
	}
}
