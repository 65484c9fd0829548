package fleet

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/job"
)

func TestDemanded(t *testing.T) {
	for text, want := range map[string]string{
		"": "map[]", "rack=r1": "map[rack:r1]", "rack=r1&nvlink&zone==z": "map[rack:r1 zone:z]", "name=n1": "map[]",
		"rack=r1|rack=r2": "map[]", "!rack=r1": "map[]", "rack!=r1": "map[]",
	} {
		if got := fmt.Sprint(demanded(text)); got != want {
			t.Errorf("demanded(%q) = %s, want %s", text, got, want)
		}
	}
}

// A request for one host by name is looked for by that name.
func TestClassForOneName(t *testing.T) {
	for _, c := range []struct {
		spec job.Spec
		want string
	}{
		{job.Spec{NodeList: []string{"n7"}}, "label/name=n7"},
		{job.Spec{NodeList: []string{"n7"}, Resources: job.Resources{GPUs: 1, GPUModel: "h100"}}, "label/name=n7"},
		{job.Spec{NodeList: []string{"n*"}}, "worker"},
		{job.Spec{NodeList: []string{"n7", "n8"}}, "worker"},
		{job.Spec{NodeList: []string{"n7", "n8"}, Resources: job.Resources{GPUs: 1, GPUModel: "h100"}}, "gpu/model/h100"},
	} {
		if got := ClassFor(c.spec); got != c.want {
			t.Errorf("%v is looked for as %s, want %s", c.spec.NodeList, got, c.want)
		}
	}
}
