package policy

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/fleet"
)

// A host with a list of its free devices is chosen like one whose devices are looked up one by one, with the same
// devices and for the same reason. So no host is preferred for having few devices, or devices of one kind.
func TestListsOfFreeDevicesDoNotChangeAChoice(t *testing.T) {
	draws := map[string]func(*rapid.T, string) contract.Hello{"": drawHost, " of hosts that talk nonsense": drawNonsense}
	for name := range Named() {
		for of, draw := range draws {
			t.Run(name+of, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					ask := Ask{Need: drawNeed(t), Typical: drawTypical(t), Gang: rapid.Bool().Draw(t, "gang")}
					var hosts []contract.Hello
					for i := range rapid.IntRange(1, 12).Draw(t, "hosts") {
						hosts = append(hosts, draw(t, fmt.Sprint("h", i)))
					}
					listed := feasibleOf(ask.Need, hosts)
					unlisted := slices.Clone(listed)
					for i := range unlisted {
						r := *unlisted[i].Room
						r.Listed, r.Parts, r.Wholes, r.GPUs = -1, 0, 0, [fleet.RoomGPUs]fleet.RoomGPU{}
						unlisted[i].Room = &r
					}
					got := told(Named()[name].Choose(nil, ask, listed, len(listed)), listed)
					want := told(Named()[name].Choose(nil, ask, unlisted, len(listed)), unlisted)
					if !slices.Equal(got, want) {
						t.Fatalf("%v\nbut one by one\n%v", got, want)
					}
				})
			})
		}
	}
}
