package session

import (
	"reflect"
	"testing"

	"github.com/musterhq/muster/internal/contract"
)

// Levels of preemptible tasks are transmitted, and a daemon that does not know them gets the total of each priority.
func TestLevelsOfPreemptibleTasksAreTransmitted(t *testing.T) {
	in := contract.Availability{Seq: 1, Free: contract.Free{Preemptible: []contract.Preemptible{
		{Priority: 1, Level: 3, CPUs: 1, GPUs: 2, Memory: 5}, {Priority: 1, Level: 1, CPUs: 2, GPUs: 4, Memory: 6}, {Priority: 7, CPUs: 8},
	}}}
	out, err := carry(in)
	if err != nil || !reflect.DeepEqual(out, in) {
		t.Fatalf("got %+v, %v, want %+v", out, err, in)
	}
	f := free(in.Free)
	if len(f.GetPreemptible()) != 2 || f.GetPreemptible()[0].GetCpus() != 3 || f.GetPreemptible()[0].GetGpus() != 6 || f.GetPreemptible()[0].GetMemory() != 11 {
		t.Errorf("an older daemon gets %v, want the total of each of two priorities", f.GetPreemptible())
	}
	in.Free.Preemptible = in.Free.Preemptible[2:]
	if f := free(in.Free); len(f.GetYields()) != 0 {
		t.Errorf("without levels: got %v, want 0", f.GetYields())
	}
}
