package meter

// The host: CPU, memory, disks and network, as the kernel counts them.

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/usage"
)

// sector is the unit of /proc/diskstats, in bytes, whatever the disk uses.
const sector = 512

// hostState is what the meter keeps of the host.
type hostState struct {
	cpu, read, written, received, sent counter
	ring                               usage.Ring
	newest                             usage.Sample
}

func newHostState() *hostState {
	return &hostState{
		cpu: newCounter(), read: newCounter(), written: newCounter(), received: newCounter(), sent: newCounter(), newest: usage.Sample{Values: usage.Unknown()},
	}
}

// measure reads what the kernel counts of the host.
func (h *hostState) measure(k *kernel, now time.Time) usage.Sample {
	s := usage.Sample{At: now, Values: usage.Unknown()}
	v := &s.Values
	busy, ok := k.busy()
	v[usage.CPU] = h.cpu.set(now, busy, ok, true)
	if used, ok := k.memoryUsed(); ok {
		v[usage.Memory] = used
	}
	read, written, ok := k.disks()
	v[usage.Read] = h.read.set(now, read, ok, true)
	v[usage.Write] = h.written.set(now, written, ok, true)
	received, sent, ok := k.network()
	v[usage.Received] = h.received.set(now, received, ok, true)
	v[usage.Sent] = h.sent.set(now, sent, ok, true)
	return s
}

// busy returns the time that all CPUs have worked, in seconds: neither idle nor waiting for disks.
func (k *kernel) busy() (float64, bool) {
	b, err := k.read(filepath.Join(k.proc, "stat"))
	if err != nil {
		return 0, false
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	const first, idle, wait, last = 1, 4, 5, 8 // user, nice, system, idle, iowait, irq, softirq, steal; guests count as user
	if len(f) <= last || string(f[0]) != "cpu" {
		return 0, false
	}
	sum := 0.0
	for i := first; i <= last; i++ {
		n, ok := parse(f[i])
		if !ok {
			return 0, false
		}
		if i != idle && i != wait && i != last { // stolen time is that of other machines
			sum += n
		}
	}
	return sum / ticks, true
}

// memoryUsed returns the bytes that programs could not get at once.
func (k *kernel) memoryUsed() (float64, bool) {
	b, err := k.read(filepath.Join(k.proc, "meminfo"))
	if err != nil {
		return 0, false
	}
	total, t := valueOf(b, "MemTotal:")
	free, f := valueOf(b, "MemAvailable:")
	return (total - free) * 1024, t && f
}

// disks returns how many bytes were read from the disks of the host and written to them. Devices that stand on others,
// such as volumes and RAID, and partitions would count twice.
func (k *kernel) disks() (read, written float64, ok bool) {
	names, err := os.ReadDir(filepath.Join(k.sys, "block"))
	if err != nil {
		return 0, 0, false
	}
	whole := map[string]bool{}
	for _, e := range names {
		name := e.Name()
		virtual := strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") ||
			strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "md")
		whole[name] = !virtual
	}
	b, err := k.read(filepath.Join(k.proc, "diskstats"))
	if err != nil {
		return 0, 0, false
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 10 || !whole[string(f[2])] {
			continue
		}
		r, okR := parse(f[5])
		w, okW := parse(f[9])
		read, written, ok = read+r*sector, written+w*sector, okR && okW
		if !ok {
			return 0, 0, false
		}
	}
	return read, written, ok
}

// network returns how many bytes the host has received and sent. If it has interfaces of hardware, only those count: what
// goes through a bridge also goes through one of them, or stays on the host.
func (k *kernel) network() (received, sent float64, ok bool) {
	b, err := k.read(filepath.Join(k.proc, "net", "dev"))
	if err != nil {
		return 0, 0, false
	}
	type traffic struct{ received, sent float64 }
	var hardware, others []traffic
	for line := range bytes.Lines(b) {
		name, counts, isInterface := strings.Cut(string(line), ":")
		f := strings.Fields(counts)
		if name = strings.TrimSpace(name); !isInterface || len(f) < 9 || name == "lo" {
			continue
		}
		r, okR := parse([]byte(f[0]))
		s, okS := parse([]byte(f[8]))
		if !okR || !okS {
			return 0, 0, false
		}
		if _, err := os.Stat(filepath.Join(k.sys, "class", "net", name, "device")); err == nil {
			hardware = append(hardware, traffic{r, s})
		} else {
			others = append(others, traffic{r, s})
		}
	}
	if len(hardware) == 0 {
		hardware = others
	}
	for _, t := range hardware {
		received, sent = received+t.received, sent+t.sent
	}
	return received, sent, len(hardware) > 0
}
