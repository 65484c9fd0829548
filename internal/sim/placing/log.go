package placing

// The log of a run: a JSON line for each request.

import (
	"encoding/json"
	"io"

	"github.com/musterhq/muster/internal/sim/load"
)

// line is one line of the log.
type line struct {
	Pod      string `json:"pod"`
	Node     string `json:"node,omitempty"`
	GPUs     []int  `json:"gpus,omitempty"`
	Milli    int    `json:"milli,omitempty"`
	Rejected bool   `json:"rejected,omitempty"`
}

// LogTo returns a Config.Log that writes JSON lines in the order of the decisions:
//
//	{"pod":"openb-pod-1685","node":"openb-node-1080","gpus":[0],"milli":810}
//	{"pod":"openb-pod-0255","node":"openb-node-0260"}
//	{"pod":"openb-pod-0042","rejected":true}
func LogTo(w io.Writer, machines []load.Machine) func(Decision) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return func(d Decision) error {
		l := line{Pod: d.Request, Rejected: d.Machine < 0}
		if d.Machine >= 0 {
			l.Node, l.GPUs, l.Milli = machines[d.Machine].Name, d.Devices, d.Milli
		}
		return out.Encode(l)
	}
}
