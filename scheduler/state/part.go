package state

// The names of the parts of a job on disk.

import (
	"encoding/binary"
	"errors"
)

// The kinds of parts: the first byte of a part's name. The name of the header is empty. Four bytes follow the kind: the
// index of the host or of the chunk; for outcomes, a note, a tail and usage, the index of the task; for an aftercorr,
// its number among those of the job, and the index of the block. Tails and usage are last, so that a reader can leave
// them out.
const (
	partHost     = 'h'
	partOutcomes = 'o'
	partWaits    = 'p'
	partEach     = 'q'
	partChunk    = 't'
	partNote     = 'u'
	partTail     = 'v'
	partUsage    = 'w'
)

var errBadRow = errors.New("not a row of a job")

func part(kind byte, n uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, n))
}
