package session

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// carrier is one direction of a session. The receiver decodes what the sender's outbox writes.
type carrier struct {
	t    *testing.T
	out  *outbox
	in   files[*job.File]
	sent int // bytes
}

func newCarrier(t *testing.T) *carrier {
	return &carrier{t: t, out: newOutbox(features{arrays: true, gangs: true})}
}

// start carries a Start with this job file, and returns it as it arrives.
func (c *carrier) start(f *job.File) contract.Start {
	c.t.Helper()
	o := testOffer(1)
	frame, err := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.out.put(frame); err != nil {
		c.t.Fatal(err)
	}
	b, _ := c.out.take()
	c.sent += len(b)
	got, err := newFrameReader(bytes.NewReader(b)).next()
	if err != nil {
		c.t.Fatal(err)
	}
	msg, err := fromWire(got, &c.in)
	if err != nil {
		c.t.Fatal(err)
	}
	return msg.(contract.Start)
}

func named(name string, size int) *job.File {
	return fileOf(job.Spec{Name: name, Script: "#!/bin/sh\n" + strings.Repeat("x", size)})
}

// A job file crosses a session once, and the receiver has one value of it for all tasks.
func TestFileCrossesOnce(t *testing.T) {
	c := newCarrier(t)
	f := named("a", 100_000)
	first := c.start(f)
	for range 1000 {
		if again := c.start(f); again.File != first.File {
			t.Fatalf("got another value for the same file: got %v, want %v", again.File, first.File)
		}
	}
	if c.sent > 100_000+1001*200 {
		t.Errorf("got %d bytes sent, want at most %v", c.sent, 100_000+1001*200)
	}
	if got := first.File.Spec(); got.Name != "a" || first.File.Digest() != f.Digest() {
		t.Errorf("the file arrived as %q, want a with the same digest", got.Name)
	}
}

// Both sides forget the same files, by number and by size, so that a file that is named again is never missing.
func TestBothSidesForgetFiles(t *testing.T) {
	c := newCarrier(t)
	for i := range 10 * maxFiles {
		size := 10
		if i%50 > 40 {
			size = job.MaxSpecBytes / 4
		}
		f := named(fmt.Sprint("n", i*i%(maxFiles+7)), size)
		if got := c.start(f); got.File.Digest() != f.Digest() {
			t.Fatalf("file %d arrived as another, want got.File.Digest() = %v", i, f.Digest())
		}
		if len(c.in.order) != len(c.out.files.order) || len(c.in.known) != len(c.in.order) || c.in.bytes != c.out.files.bytes {
			t.Fatalf("after file %d: got %d and %d files known, want the same on both sides", i, len(c.in.order), len(c.out.files.order))
		}
		if len(c.in.order) > maxFiles || c.in.bytes > maxFileBytes {
			t.Fatalf("got %d files of %d bytes, want at most %d of %d", len(c.in.order), c.in.bytes, maxFiles, maxFileBytes)
		}
	}
}

// A peer of an earlier version sends and gets the job file with each Start, and gets no task of an array.
func TestEarlierVersionGetsTheFileWithEachStart(t *testing.T) {
	c := &carrier{t: t, out: newOutbox(features{}), in: files[*job.File]{repeats: true}}
	f := named("a", 1000)
	for i := range 100 {
		if got := c.start(f); got.File.Digest() != f.Digest() || c.sent < (i+1)*1000 || len(c.in.known)+len(c.out.files.known) > 0 {
			t.Fatalf("Start %d: got %d bytes and %d remembered files, want at least %d and 0", i, c.sent, len(c.in.known), (i+1)*1000)
		}
	}
	o := testOffer(1)
	frame, err := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f, Element: contract.Element{Array: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.out.put(frame); !errors.Is(err, ErrInvalid) {
		t.Errorf("a task of an array: got %v, want ErrInvalid", err)
	}
	o.Gang = 2
	if frame, err = toWire(o); err != nil {
		t.Fatal(err)
	}
	for _, knows := range []bool{false, true} {
		c.out = newOutbox(features{arrays: true, gangs: knows})
		if err := c.out.put(frame); (err == nil) != knows || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("an offer to a member of a gang, to a peer that knows gangs %v: got %v, want ErrInvalid unless it knows them", knows, err)
		}
	}
}

// A peer that names a file that it has not sent, or sends a file again, violates the protocol.
func TestUnsentAndRepeatedFilesAreRefused(t *testing.T) {
	o := testOffer(1)
	f := named("a", 10)
	for name, change := range map[string]func(*carrier) error{
		"unknown": func(c *carrier) error {
			frame, _ := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f})
			frame.GetStart().Spec = nil
			_, err := fromWire(frame, &c.in)
			return err
		},
		"short digest": func(c *carrier) error {
			frame, _ := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f})
			frame.GetStart().Spec, frame.GetStart().File = nil, []byte{1, 2}
			_, err := fromWire(frame, &c.in)
			return err
		},
		"again": func(c *carrier) error {
			c.start(f)
			frame, _ := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f})
			_, err := fromWire(frame, &c.in)
			return err
		},
	} {
		if err := change(newCarrier(t)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	// A digest that does not belong to the file is ignored: the receiver computes its own.
	c := newCarrier(t)
	frame, _ := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: f})
	frame.GetStart().File = make([]byte, 32)
	msg, err := fromWire(frame, &c.in)
	if err != nil || msg.(contract.Start).File.Digest() != f.Digest() {
		t.Errorf("a wrong digest beside the file: got %v, want the right digest", err)
	}
}

// A job file with a field or a value of a later version arrives, with the reason why this version cannot run the job:
// the worker refuses it. It crosses once like any other. Text that is not a JSON object violates the protocol.
func TestFileOfALaterVersionArrivesWithAReason(t *testing.T) {
	o := testOffer(1)
	good := string(named("a", 10).Text())
	for text, want := range map[string]string{
		strings.Replace(good, "{", `{"moon":true,`, 1):             `unknown field "moon"`,
		strings.Replace(good, "{", `{"partition":"orbit",`, 1):     `partition "orbit"`,
		strings.Replace(good, "{", `{"signal":{"by":"radio"},`, 1): "signal",
		"[1]": "",
		"{":   "",
	} {
		var in files[*job.File]
		frame, err := toWire(contract.Start{Attempt: o.Attempt, Group: o.Group, File: named("a", 10)})
		if err != nil {
			t.Fatal(err)
		}
		frame.GetStart().Spec = []byte(text)
		msg, err := fromWire(frame, &in)
		if want == "" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.40s: %v", text, err)
			continue
		}
		f := msg.(contract.Start).File
		if !strings.Contains(f.Strange(), want) || !isSentence(f.Strange()) {
			t.Errorf("%.40s: got reason %q, want one sentence with %q", text, f.Strange(), want)
		}
		sum := f.Digest()
		frame.GetStart().Spec, frame.GetStart().File = nil, sum[:]
		if again, err := fromWire(frame, &in); err != nil || again.(contract.Start).File != f {
			t.Errorf("%.40s by its digest: got error %v, want the same file", text, err)
		}
	}
}
