package report

// What the network of a run carried. The caller fills it in.

import "time"

// Network is the network of a run and what it carried.
type Network struct {
	Topology string   `json:"topology"` // as in leaf-spine or fat-tree
	Switches []Switch `json:"switches,omitempty"`
	// Racks[i] is the switch, as an index in Switches, to which machine i is joined; -1: none.
	Racks    []int     `json:"racks,omitempty"`
	Links    []Link    `json:"links,omitempty"`
	Messages int64     `json:"messages"`          // control messages
	Bytes    int64     `json:"bytes"`             // of them
	Dropped  int64     `json:"dropped"`           // messages that never arrived
	Copied   int64     `json:"copied_bytes"`      // files of jobs
	Copies   int64     `json:"copies"`            // how many times files went to a host
	CopyTime float64   `json:"copy_s"`            // how long they took, all together
	Queueing float64   `json:"queueing_s"`        // how long messages waited for links, all together
	Quiet    float64   `json:"quiet_s,omitempty"` // time without jobs that was skipped: what idle daemons send in it is not counted
	Paths    []PathUse `json:"paths,omitempty"`   // of files, those with the most bytes first
}

// PathName returns the name of a path, made of the nodes on it; "a link" if there are none.
func PathName(names []string, nodes []int) string {
	if len(nodes) == 0 {
		return "a link"
	}
	var text []byte
	for i, n := range nodes {
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, names[n]...)
	}
	return string(text)
}

// Switch is a switch of the network.
type Switch struct {
	Name string `json:"name"`
	Tier int    `json:"tier"` // 1: hosts are joined to it; 2: the tier above, and so on
}

// Link is one link with both of its directions.
type Link struct {
	A End `json:"a"`
	B End `json:"b"`
	// bytes that went either way, and the part of the capacity that they used, over the whole run
	Bytes int64   `json:"bytes"`
	Used  float64 `json:"used"`
	Flows int64   `json:"flows"` // that were hashed to it
	Lost  int64   `json:"lost"`  // messages
}

// End is one end of a link: a machine or a switch. The other one is -1.
type End struct {
	Machine int `json:"machine"`
	Switch  int `json:"switch"`
}

// AtMachine returns the end of a link at a machine, which is an index in load.Load.Machines.
func AtMachine(i int) End { return End{Machine: i, Switch: -1} }

// AtSwitch returns the end of a link at a switch, which is an index in Network.Switches.
func AtSwitch(i int) End { return End{Machine: -1, Switch: i} }

// PathUse is how often a path was taken by the files of jobs.
type PathUse struct {
	Path  string `json:"path"`  // as in leaf-3 spine-1 leaf-7
	Flows int64  `json:"flows"` // copies
	Bytes int64  `json:"bytes"`
}

// Fault is something that went wrong during a run.
type Fault struct {
	At       time.Duration
	Until    time.Duration // when it was over; 0: never
	Kind     string        // as in host, link, rack or partition
	What     string        // as in node-007, or leaf-3 to spine-1
	Machines []int         // that it hit, as indices in load.Load.Machines
}

// FaultCost is a fault and what it did to jobs. A task that was ended by a fault counts for the latest fault that had
// hit one of its machines by then.
type FaultCost struct {
	At       float64 `json:"at_s"`
	Until    float64 `json:"until_s"` // 0: it was never over
	Kind     string  `json:"kind"`
	What     string  `json:"what"`
	Machines int     `json:"machines"`
	Hit      int     `json:"hit"`            // jobs that it ended
	Again    int     `json:"again"`          // of them ran again
	Lost     float64 `json:"lost_gpu_s"`     // GPU-seconds of work that were lost
	Recovery float64 `json:"recovery_max_s"` // the longest time from the end of a job to its next start
}
