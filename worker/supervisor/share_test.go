package supervisor

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A runner is told how much of the memory of a shared GPU a task may use.
func TestRunnerIsToldTheMemoryOfAShare(t *testing.T) {
	t.Parallel()
	granted := gpu.Grant{Memory: []gpu.MemoryLimit{{PCI: "00000000:1B:00.0", Bytes: 10 << 30}}}
	got := Limits{}.of(driver.Task{}, granted).DeviceMemory
	if want := []protocol.DeviceMemory{{PCI: "00000000:1B:00.0", Bytes: 10 << 30}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
