package pidspace

// Where the pids of each namespace begin.

import (
	"os"
	"strconv"
	"strings"
)

const (
	// lowestPID is the first pid that the kernel gives again when it has given the highest one.
	lowestPID = 300
	// leastPIDs is the number of pids that each kernel can give.
	leastPIDs = 1 << 15
)

// maxPID returns the number below which the pids of this host are.
func maxPID() int64 {
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return leastPIDs
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 2*lowestPID {
		return leastPIDs
	}
	return n
}

// lastPID returns the pid after which the n-th namespace begins to count. Namespaces that follow each other begin far
// from each other, because the step is the golden section of all pids. So the children of tasks that run at the same time
// seldom have the same pids: of ten tasks, each can use about a hundredth of all pids before it reaches those of another.
func lastPID(n, pids int64) int64 {
	const golden = 2654435769                                 // of 1<<32
	part := uint64(uint32(uint64(n) * golden))                //nolint:gosec // the lower bits are meant
	return lowestPID + int64(part*uint64(pids-lowestPID)>>32) //nolint:gosec // below pids
}
