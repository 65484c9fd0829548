package state

// What many tasks of a job have in common. Cells refer to it by number.

import (
	"slices"
	"unsafe"

	"github.com/musterhq/muster/job"
)

// common holds the hosts, the epochs and the texts of the tasks of one job.
type common struct {
	hosts  *hosts
	epochs []job.Epoch
	texts  []string // the isolation of attempts that ended
}

func newCommon() common { return common{hosts: newHosts(), epochs: make([]job.Epoch, 1, 2)} }

// epochOf returns the index of an epoch in epochs, and adds it if it is new.
func (cm *common) epochOf(e job.Epoch) uint32 {
	for i, x := range slices.Backward(cm.epochs) { // it is nearly always the last
		if x == e {
			return uint32(i)
		}
	}
	cm.epochs = append(cm.epochs, e)
	return uint32(len(cm.epochs) - 1)
}

// maxTexts bounds the list of texts, because textOf searches it.
const maxTexts = 64

// textOf returns the index of a text in texts plus 1, and adds the text if it is new. It returns 0 if the text is empty
// or the list is full.
func (cm *common) textOf(s string) uint16 {
	if s == "" {
		return 0
	}
	if i := slices.Index(cm.texts, s); i >= 0 {
		return uint16(i + 1)
	}
	if len(cm.texts) >= maxTexts {
		return 0
	}
	cm.texts = append(cm.texts, s)
	return uint16(len(cm.texts))
}

const epochBytes = int(unsafe.Sizeof(job.Epoch{}))

// bytes returns the memory of the hosts and the epochs.
func (cm *common) bytes() int { return cap(cm.hosts.list)*hostBytes + cap(cm.epochs)*epochBytes }
