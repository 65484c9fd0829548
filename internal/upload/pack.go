package upload

// Packs: files that hold many chunks, because creating a file costs more than writing a small chunk.

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
	// packExt is the extension of a pack's name.
	packExt = ".pack"
	// maxPack and MaxAsk bound the bytes and chunks of a pack. A pack may exceed maxPack by one chunk.
	maxPack = 64 << 20
	// writeAtOnce is the size of one write, and of the buffer. For a longer write the kernel looks for larger pieces
	// of free memory, which costs more than it saves: on Linux 6.18, 500 MB took 0.16 s of CPU in writes of 64 KiB,
	// and 0.6 to 1.2 s in writes of 128 KiB.
	writeAtOnce = 64 << 10
	// countBytes is the size of a pack's last field, the number of chunks.
	countBytes = 4
)

// pack is one file of chunks. Its fields are guarded by the mu of packs.
type pack struct {
	name string
	user userID // who uploaded it
	refs []Ref
	size int64     // of the file
	used time.Time // when a chunk of it was last used
	// written is when this process wrote the pack; zero if an earlier process did. See trustFor.
	written time.Time
	// synced says that the pack is on disk and survives a power cut.
	synced bool
}

// Putter writes chunks into packs of a store. It is not safe for concurrent use. Chunks are in the store once Close
// has returned; without Close they are dropped.
type Putter struct {
	store    *Store
	sync     bool
	user     userID        // who uploads
	only     map[Hash]bool // the chunks that are accepted; nil: all
	file     *os.File
	out      *bufio.Writer
	refs     []Ref
	seen     map[Hash]bool
	bytes    int64
	reserved int64 // bytes reserved in the store
}

// Putter returns a putter. With sync it begins to write back a pack when the pack is closed, so that PutTree waits
// less.
func (s *Store) Putter(sync bool) *Putter {
	return &Putter{store: s, sync: sync, seen: map[Hash]bool{}}
}

// Put stores a chunk. It does not keep data.
func (p *Putter) Put(data []byte) (Ref, error) {
	r := Ref{Hash: Sum(data), Size: uint32(len(data))} //nolint:gosec // at most MaxChunk
	if len(data) == 0 || len(data) > MaxChunk {
		return r, fmt.Errorf("blob: chunk of %d bytes: %w: from 1 to %d", len(data), ErrInvalid, MaxChunk)
	}
	if p.only != nil && !p.only[r.Hash] {
		return r, fmt.Errorf("blob: chunk %s: %w: it is damaged, or was not requested", r.Hash, ErrInvalid)
	}
	if err := p.store.open(); err != nil {
		return r, err
	}
	if p.seen[r.Hash] {
		return r, nil
	}
	if p.store.packs.has(r) {
		if p.user != "" && !p.store.packs.hasOf(p.user, r) {
			p.store.doubles.note(p.user, r.Hash)
		}
		return r, nil
	}
	if len(p.refs) == MaxAsk || p.bytes > maxPack {
		if err := p.Close(); err != nil {
			return r, err
		}
	}
	if err := p.store.reserve(p.user, int64(len(data))+refBytes); err != nil {
		return r, err
	}
	p.reserved += int64(len(data)) + refBytes
	return r, p.write(r, data)
}

// setUser sets whose chunks follow. It begins a new pack if the user changes.
func (p *Putter) setUser(user userID) error {
	if p.user == user {
		return nil
	}
	err := p.Close()
	p.user = user
	return err
}

// rewrite stores a chunk that the store has in another pack. It may exceed the store's size, because the other pack
// is removed afterwards.
func (p *Putter) rewrite(r Ref, data []byte) error {
	if len(p.refs) == MaxAsk || p.bytes > maxPack {
		if err := p.Close(); err != nil {
			return err
		}
	}
	p.reserved += int64(len(data)) + refBytes
	p.store.quota.count(p.user, int64(len(data))+refBytes)
	return p.write(r, data)
}

func (p *Putter) write(r Ref, data []byte) error {
	if p.file == nil {
		// Names sort by time. Of a chunk that is in several packs, load takes the one from the newest.
		f, err := os.CreateTemp(filepath.Join(p.store.cfg.Dir, "tmp"), fmt.Sprintf("%016x-%s-*%s", time.Now().UnixNano(), p.user, packExt))
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

// Close adds the pack to the store. The Putter may be used again, for another pack.
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
		_ = unix.SyncFileRange(int(p.file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // an error does no harm: PutTree syncs
	}
	name := filepath.Base(p.file.Name())
	if err = errors.Join(err, p.file.Close()); err == nil {
		err = os.Rename(p.file.Name(), p.store.packs.path(name))
	}
	if err != nil {
		return fmt.Errorf("blob: keep chunks: %w", err)
	}
	now := time.Now()
	size := p.bytes + int64(len(tail))
	p.store.quota.count(p.user, size-p.reserved)
	p.store.packs.add(&pack{name: name, user: p.user, refs: p.refs, size: size, used: now, written: now})
	p.file, p.reserved = nil, 0
	return nil
}

// Discard drops the chunks that were put since the last Close.
func (p *Putter) Discard() {
	if p.file != nil {
		_ = p.file.Close()           // it is dropped
		_ = os.Remove(p.file.Name()) // otherwise open removes it after a restart
	}
	p.store.quota.count(p.user, -p.reserved)
	p.file, p.out, p.refs, p.bytes, p.reserved = nil, nil, nil, 0, 0
	clear(p.seen)
}

// PutAll stores a stream of chunks of a user, each preceded by its length. If the stream breaks off, complete chunks
// stay in the store, and the error is ErrInvalid.
func (s *Store) PutAll(from io.Reader, user string) error {
	p := s.Putter(true)
	p.user = idOf(user)
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

// pieces writes to a file in writes of writeAtOnce bytes.
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

// readPack reads the index at the end of a pack that an earlier process wrote.
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
		p.user = userID(parts[1])
	}
	broken := fmt.Errorf("blob: %s: %w: its index does not match its chunks", p.name, ErrInvalid)
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

// isPack reports whether a file in the packs directory is a pack.
func isPack(name string) bool { return strings.HasSuffix(name, packExt) }
