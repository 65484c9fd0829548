package upload

// Splitting files into chunks.

import (
	"errors"
	"fmt"
	"io"
	"os"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the algorithm
)

// algorithm must never change: another one would choose other boundaries, so that everything would be sent again.
const algorithm = "fastcdc-v1.0.0"

// Chunker splits files into chunks, one file after the other.
type Chunker struct {
	chunks *chunkers.Chunker
	small  []byte
}

// NewChunker returns a chunker. It takes some megabytes of memory.
func NewChunker() (*Chunker, error) {
	c, err := chunkers.NewChunker(algorithm, nil, &chunkers.ChunkerOpts{MinSize: MinChunk, NormalSize: AverageChunk, MaxSize: MaxChunk})
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	return &Chunker{chunks: c, small: make([]byte, MinChunk)}, nil
}

// Split reads r to its end and passes each chunk to take, which must not keep the data.
func (c *Chunker) Split(r io.Reader, take func(Ref, []byte) error) (Refs, error) {
	n, err := io.ReadFull(r, c.small)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case errors.Is(err, io.ErrUnexpectedEOF): // one chunk, as for most files
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

// once is a reader of one slice.
type once struct{ b []byte }

func (o *once) Read(p []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n, nil
}

// SplitFile splits the file of a source and sets the source's size and chunks. They describe the file as it is now,
// even if it has changed since the scan.
func (c *Chunker) SplitFile(s *Source, take func(Ref, []byte) error) error {
	f, err := os.Open(s.Disk)
	if err != nil {
		return fmt.Errorf("upload %s: %w", s.Disk, cause(err))
	}
	defer f.Close()
	refs, err := c.Split(f, take)
	if err != nil {
		return fmt.Errorf("upload %s: %w", s.Disk, cause(err))
	}
	s.Chunks, s.Size = refs, 0
	for _, r := range refs {
		s.Size += int64(r.Size)
	}
	return nil
}
