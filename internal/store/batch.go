package store

// Reading and writing keys of the database.

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"
)

// ErrStop ends ReadRange early when its callback returns it.
var ErrStop = errors.New("stop")

// Batch collects changes that are written together or not at all. It is valid until the callback of Write or WriteSync
// returns. Keys and values are copied.
type Batch struct{ b *pebble.Batch }

// Set writes a value under a key.
func (b Batch) Set(key, val []byte) error { return b.b.Set(key, val, nil) }

// SetMessage writes a protobuf message under a key. It marshals directly into the batch.
func (b Batch) SetMessage(key []byte, m proto.Message) error {
	op := b.b.SetDeferred(len(key), proto.Size(m))
	copy(op.Key, key)
	v, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(op.Value[:0], m)
	if err != nil {
		return err
	}
	if len(v) != len(op.Value) {
		return fmt.Errorf("message of %d bytes, expected %d", len(v), len(op.Value))
	}
	return op.Finish()
}

// Delete deletes a key if it exists.
func (b Batch) Delete(key []byte) error { return b.b.Delete(key, nil) }

// DeleteRange deletes the keys from from up to, but without, to.
func (b Batch) DeleteRange(from, to []byte) error { return b.b.DeleteRange(from, to, nil) }

// WriteSync writes the batch that fill makes. When it returns, this write and all before it survive a power cut. If
// fill returns an error, nothing is written and the error is returned. After Close the error is ErrClosed.
func (s *Store) WriteSync(fill func(Batch) error) error { return s.write(pebble.Sync, fill) }

// Write is WriteSync without the sync: a crash may lose the write, and then all later writes too.
func (s *Store) Write(fill func(Batch) error) error { return s.write(pebble.NoSync, fill) }

// write commits a batch. If the write-ahead log cannot be written, the process ends: Pebble panics then, in part while it
// holds locks, so nothing could be trusted afterwards.
func (s *Store) write(opts *pebble.WriteOptions, fill func(Batch) error) (err error) {
	b := s.db.NewBatch()
	if err := fill(Batch{b}); err != nil {
		return errors.Join(err, b.Close())
	}
	defer func() {
		r := recover()
		if e, ok := r.(error); ok && errors.Is(e, pebble.ErrClosed) {
			err = ErrClosed
		} else if r != nil {
			s.fatal.end(fmt.Errorf("store: write: %v", r))
		}
	}()
	return errors.Join(b.Commit(opts), b.Close())
}

// Read returns a copy of the value under a key, or nil if there is none.
func (s *Store) Read(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, damaged(err)
	}
	own := append([]byte{}, v...)
	return own, closer.Close()
}

// ReadNumber reads the 8 bytes under a key, big-endian. A missing value or one of another length is an error.
func (s *Store) ReadNumber(key []byte) (uint64, error) {
	v, err := s.Read(key)
	if err == nil && len(v) != 8 {
		err = fmt.Errorf("%d bytes, want 8", len(v))
	}
	if err != nil {
		return 0, fmt.Errorf("read %q: %w", key, err)
	}
	return binary.BigEndian.Uint64(v), nil
}

// ReadPrefix calls f with each key that begins with prefix and its value, in the order of keys. Both slices are valid
// only until f returns. If f returns an error, ReadPrefix stops and returns the error with the key; after ErrStop it
// returns nil.
func (s *Store) ReadPrefix(prefix []byte, f func(key, val []byte) error) error {
	return s.ReadRange(prefix, after(prefix), f)
}

// ReadRange is like ReadPrefix, for the keys from from up to, but without, to.
func (s *Store) ReadRange(from, to []byte, f func(key, val []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return damaged(err)
	}
	defer func() {
		if closing := it.Close(); err == nil { // it repeats an error of reading
			err = damaged(closing)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return damaged(err)
		}
		switch err := f(it.Key(), v); {
		case errors.Is(err, ErrStop):
			return nil
		case err != nil:
			return fmt.Errorf("key %q: %w", it.Key(), err)
		}
	}
	return damaged(it.Error())
}

// after returns the first key beyond all that begin with prefix, or nil if there is none.
func after(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
