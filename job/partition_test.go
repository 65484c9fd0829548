package job

import (
	"strings"
	"testing"
	"time"
)

// The default of a job on lost contact, and which drafts contradict themselves.
func TestContradictoryPartitionIsRefused(t *testing.T) {
	for _, c := range []struct {
		partition string
		lease     time.Duration
		want      string
		refused   bool
	}{
		{"", 0, PartitionHold, false},
		{"", time.Minute, PartitionFence, false},
		{PartitionFence, 0, PartitionFence, false},
		{PartitionFence, time.Hour, PartitionFence, false},
		{PartitionHold, 0, PartitionHold, false},
		{PartitionHold, time.Minute, PartitionHold, true},
	} {
		s := Spec{Partition: c.partition, Lease: Duration(c.lease)}
		if got := s.WithPartition().Partition; got != c.want {
			t.Errorf("partition %q, lease %s: %q, want %q", c.partition, c.lease, got, c.want)
		}
		if err := s.CheckPartition(); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "say partition fence") {
			t.Errorf("partition %q, lease %s: %v, want an error exactly if they contradict", c.partition, c.lease, err)
		}
	}
	if (Spec{}).Holds() {
		t.Error("a job of an older version without the field holds: its worker would not end it, but its owner would write it off")
	}
}
