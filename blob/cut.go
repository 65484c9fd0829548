package blob

// Files become chunks.

import (
	"errors"
	"fmt"
	"io"
	"os"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // makes the algorithm known to chunkers
)

// algorithm must stay: another would cut at other places, and what was sent
// before would be sent again.
const algorithm = "fastcdc-v1.0.0"

// Cutter cuts files into chunks, one file after the other.
type Cutter struct {
	chunks *chunkers.Chunker
	small  []byte
}

// NewCutter makes a cutter; it holds some megabytes.
func NewCutter() (*Cutter, error) {
	c, err := chunkers.NewChunker(algorithm, nil, &chunkers.ChunkerOpts{MinSize: MinChunk, NormalSize: AverageChunk, MaxSize: MaxChunk})
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return &Cutter{chunks: c, small: make([]byte, MinChunk)}, nil
}

// Cut reads r to its end and gives each chunk to take, which must not keep the
// data.
func (c *Cutter) Cut(r io.Reader, take func(Ref, []byte) error) (Refs, error) {
	n, err := io.ReadFull(r, c.small)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case errors.Is(err, io.ErrUnexpectedEOF): // most files: one chunk
		return give(nil, c.small[:n], take)
	case err != nil:
		return nil, err
	}
	c.chunks.Reset(io.MultiReader(&once{c.small}, r))
	var refs Refs
	for {
		data, err := c.chunks.Next()
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, err
		}
		if len(data) > 0 {
			if refs, err = give(refs, data, take); err != nil {
				return nil, err
			}
		}
		if last {
			return refs, nil
		}
	}
}

func give(refs Refs, data []byte, take func(Ref, []byte) error) (Refs, error) {
	ref := Ref{Hash: Sum(data), Size: uint32(len(data))} //nolint:gosec // at most MaxChunk
	return append(refs, ref), take(ref, data)
}

// once reads a slice.
type once struct{ b []byte }

func (o *once) Read(p []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n, nil
}

// CutFile cuts the file of a source and fills in its size and chunks: what is
// there now, should the file have changed since it was listed.
func (c *Cutter) CutFile(s *Source, take func(Ref, []byte) error) error {
	f, err := os.Open(s.Disk)
	if err != nil {
		return fmt.Errorf("upload %s: %w", s.Disk, cause(err))
	}
	defer f.Close()
	refs, err := c.Cut(f, take)
	if err != nil {
		return fmt.Errorf("upload %s: %w", s.Disk, cause(err))
	}
	s.Chunks, s.Size = refs, 0
	for _, r := range refs {
		s.Size += int64(r.Size)
	}
	return nil
}
