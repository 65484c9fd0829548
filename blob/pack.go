package blob

// Chunks on disk: what came together lies in one file, as to make a file costs
// more than to write a small chunk.

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// packEnds is what a pack's name ends with.
	packEnds = ".pack"
	// maxPack and MaxAsk bound what one pack holds; a chunk more is let in.
	maxPack = 64 << 20
	// writeAtOnce is how much is written at once, and gathered for that. For a
	// longer write the kernel looks for longer pieces of free memory, which costs
	// more than it saves: on Linux 6.18, 500 MB took 0.16 s of CPU in writes of
	// 64 KiB, and 0.6 to 1.2 s in writes of 128 KiB.
	writeAtOnce = 64 << 10
	// countBytes is the length of a pack's last field.
	countBytes = 4
)

// pack is one file of chunks. Its fields are guarded by the store's mu.
type pack struct {
	name string
	by   by // who uploaded it
	refs []Ref
	size int64     // of the file
	used time.Time // when a chunk of it was of use last
	// since is when this process wrote it; zero if another did. For a while it
	// is read without being hashed once more.
	since time.Time
	// synced says that it is on the disk for good.
	synced bool
}

// Putter writes chunks into a store, as one pack. It is used by one goroutine.
// Chunks are in the store once Close has returned; without Close nothing stays.
type Putter struct {
	store    *Store
	sync     bool
	by       by            // whose upload it is
	only     map[Hash]bool // others are refused, if it is not nil
	file     *os.File
	out      *bufio.Writer
	refs     []Ref
	seen     map[Hash]bool
	bytes    int64
	reserved int64 // of the store's size
}

// Putter begins a pack. With sync its bytes are on their way to the disk when
// it is closed, so that PutTree has little to wait for.
func (s *Store) Putter(sync bool) *Putter {
	return &Putter{store: s, sync: sync, seen: map[Hash]bool{}}
}

// Put keeps a chunk; its data is not needed afterwards.
func (p *Putter) Put(data []byte) (Ref, error) {
	r := Ref{Hash: Sum(data), Size: uint32(len(data))} //nolint:gosec // at most MaxChunk
	if len(data) == 0 || len(data) > MaxChunk {
		return r, fmt.Errorf("blob: chunk of %d bytes: %w: from 1 to %d", len(data), ErrInvalid, MaxChunk)
	}
	if p.only != nil && !p.only[r.Hash] {
		return r, fmt.Errorf("blob: chunk %s: %w: it came damaged, or was not asked for", r.Hash, ErrInvalid)
	}
	if err := p.store.open(); err != nil {
		return r, err
	}
	if p.seen[r.Hash] || p.store.has(r) {
		return r, nil
	}
	if len(p.refs) == MaxAsk || p.bytes > maxPack {
		if err := p.Close(); err != nil {
			return r, err
		}
	}
	if err := p.store.reserve(p.by, int64(len(data))+refBytes); err != nil {
		return r, err
	}
	p.reserved += int64(len(data)) + refBytes
	return r, p.write(r, data)
}

// turn has what follows be another user's.
func (p *Putter) turn(whose by) error {
	if p.by == whose {
		return nil
	}
	err := p.Close()
	p.by = whose
	return err
}

// again puts a chunk that the store has in another pack, even if that needs
// more than the store may take: the other pack goes then.
func (p *Putter) again(r Ref, data []byte) error {
	if len(p.refs) == MaxAsk || p.bytes > maxPack {
		if err := p.Close(); err != nil {
			return err
		}
	}
	p.reserved += int64(len(data)) + refBytes
	p.store.count(p.by, int64(len(data))+refBytes)
	return p.write(r, data)
}

func (p *Putter) write(r Ref, data []byte) error {
	if p.file == nil {
		// By its name the newest comes last, and holds a chunk that was sent again.
		f, err := os.CreateTemp(filepath.Join(p.store.cfg.Dir, "tmp"), fmt.Sprintf("%016x-%s-*%s", time.Now().UnixNano(), p.by, packEnds))
		if err != nil {
			return fmt.Errorf("blob: keep chunk: %w", err)
		}
		p.file, p.out = f, bufio.NewWriterSize(pieces{f}, writeAtOnce)
	}
	if _, err := p.out.Write(data); err != nil {
		return fmt.Errorf("blob: keep chunk: %w", err)
	}
	p.refs = append(p.refs, r)
	p.seen[r.Hash] = true
	p.bytes += int64(len(data))
	return nil
}

// Close puts what was written into the store. The Putter may be used again, for
// another pack.
func (p *Putter) Close() error {
	if p.file == nil {
		p.Discard()
		return nil
	}
	defer p.Discard()
	tail := binary.BigEndian.AppendUint32(Refs(p.refs).bytes(), uint32(len(p.refs))) //nolint:gosec // at most MaxAsk
	_, err := p.out.Write(tail)
	err = errors.Join(err, p.out.Flush())
	if err == nil && p.sync {
		_ = unix.SyncFileRange(int(p.file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // PutTree makes sure
	}
	name := filepath.Base(p.file.Name())
	if err = errors.Join(err, p.file.Close()); err == nil {
		err = os.Rename(p.file.Name(), p.store.pack(name))
	}
	if err != nil {
		return fmt.Errorf("blob: keep chunks: %w", err)
	}
	now := time.Now()
	size := p.bytes + int64(len(tail))
	p.store.count(p.by, size-p.reserved)
	p.store.enter(&pack{name: name, by: p.by, refs: p.refs, size: size, used: now, since: now})
	p.file, p.reserved = nil, 0
	return nil
}

// Discard drops what was put since the last Close.
func (p *Putter) Discard() {
	if p.file != nil {
		_ = p.file.Close()           // as it is of no use
		_ = os.Remove(p.file.Name()) // else it goes when the store is opened the next time
	}
	p.store.count(p.by, -p.reserved)
	p.file, p.out, p.refs, p.bytes, p.reserved = nil, nil, nil, 0, 0
	clear(p.seen)
}

// PutAll keeps chunks of a user that come one after the other, each after its
// head. What arrived whole stays, should the rest not arrive: that is ErrInvalid.
func (s *Store) PutAll(from io.Reader, user string) error {
	p := s.Putter(true)
	p.by = uploader(user)
	defer p.Discard()
	buf := make([]byte, MaxChunk)
	for {
		data, err := ReadChunk(from, buf)
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return p.Close()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("blob: chunks: %w: %w", ErrInvalid, err), p.Close())
		}
		if _, err := p.Put(data); err != nil {
			return errors.Join(err, p.Close())
		}
	}
}

// pieces writes to a file, writeAtOnce bytes at a time.
type pieces struct{ file *os.File }

func (w pieces) Write(data []byte) (int, error) {
	n := 0
	for part := range slices.Chunk(data, writeAtOnce) {
		m, err := w.file.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// readPack reads the list at the end of a pack that an earlier process wrote.
func readPack(path string) (*pack, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := &pack{name: filepath.Base(path), size: info.Size(), used: info.ModTime()}
	if parts := strings.Split(p.name, "-"); len(parts) > 2 {
		p.by = by(parts[1])
	}
	broken := fmt.Errorf("blob: %s: %w: its list is not that of its chunks", p.name, ErrInvalid)
	var count [countBytes]byte
	if _, err := f.ReadAt(count[:], p.size-countBytes); err != nil {
		return nil, broken
	}
	n := int64(binary.BigEndian.Uint32(count[:])) * refBytes
	if n > MaxAsk*refBytes || n > p.size-countBytes {
		return nil, broken
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, p.size-countBytes-n); err != nil {
		return nil, broken
	}
	if p.refs, err = parseRefs(text); err != nil {
		return nil, err
	}
	left := p.size - countBytes - n
	for _, r := range p.refs {
		left -= int64(r.Size)
	}
	if left != 0 {
		return nil, broken
	}
	return p, nil
}

// isPack says whether a file of the store's directory is a pack.
func isPack(name string) bool { return strings.HasSuffix(name, packEnds) }
