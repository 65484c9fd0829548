package job

import (
	"strings"
	"testing"
	"time"
)

// What a job does on lost contact if it does not say, and which drafts contradict themselves.
func TestPartitionOfDraft(t *testing.T) {
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
			t.Errorf("partition %q, lease %s: %v", c.partition, c.lease, err)
		}
	}
	if (Spec{}).Holds() {
		t.Error("a job of an older version, which says nothing, holds: its worker would not end it, and its owner would give it up")
	}
}
