package report

import "github.com/musterhq/muster/internal/sim/record"

// Tee is a record.Sink that hands each record to several ones, in this order.
type Tee []record.Sink

// Take hands the record on.
func (t Tee) Take(r record.Record) {
	for _, s := range t {
		s.Take(r)
	}
}
