package protocol

// Frames carry any bytes, and no value out of range is sent or read.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

const attempt = "k3v9x0q2mz-0000000000000.0.1"

func TestRequestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range []Request{
		{Start: &Start{Attempt: attempt, Command: []string{"a", "<b>"}, User: "u", Env: []string{"A=1"}, Deadline: 5, Lead: 1, Grace: 2, OutputLimit: 1 << 20, Spare: attempt}},
		{Start: &Start{Attempt: attempt, Script: "#!/bin/sh\n\x01", User: "u", Hold: true, Limit: time.Hour, OutputLimit: 1 << 30}},
		{Start: &Start{Attempt: attempt, User: "u", Hold: true, OutputLimit: 1 << 20, Container: &Container{
			Host: "unix:///s", Image: "i:1", Mounts: []string{"/a:/b:ro"}, Allowed: []string{"/a"}, As: "5:6", GPUs: GPUs{IDs: []string{"GPU-1"}, CDI: []string{"x=GPU-1"}, Driver: "x", Capabilities: []string{"gpu"}, Mounts: []string{"/run/x"}},
		}}},
		{Stop: &Stop{Attempt: attempt, Grace: time.Second, Reason: "r"}},
		{Signal: &Signal{Attempt: attempt, Number: 10}},
		{Extend: []Extension{{Attempt: attempt, Deadline: 7}, {Attempt: attempt, Deadline: 8, Skew: -9}}},
		{Drain: true},
		{Leave: true},
	} {
		frame, err := Frame(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadRequest(bytes.NewReader(frame))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came back as %+v, %v, want the same", m, got, err)
		}
		if _, err := ReadRequest(bytes.NewReader(frame[:len(frame)-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut frame: %v, want io.ErrUnexpectedEOF", err)
		}
	}
}

func TestReportRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range []Report{
		{Welcome: &Welcome{Info: Info{Generation: 3, PID: 7, Version: "v", Boot: "b"}, Running: []Started{{Attempt: attempt, PID: 9}}, Starting: []string{attempt}}},
		{Started: &Started{Attempt: attempt, PID: 1}},
		{Progress: &Progress{Attempt: attempt, Detail: "pulling"}},
		{Ended: &Ended{Attempt: attempt, Exit: &job.Exit{State: job.Failed, Code: 7, Started: true}}},
		{Ended: &Ended{Attempt: attempt, Segment: 3, Silent: true}},
		{Ended: &Ended{Attempt: attempt}},
	} {
		frame, err := Frame(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadReport(bytes.NewReader(frame)); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came back as %+v, %v, want the same", m, got, err)
		}
	}
}

func TestInvalidRequestIsRefused(t *testing.T) {
	t.Parallel()
	good := Start{Attempt: attempt, Command: []string{"a"}, User: "u", Hold: true, OutputLimit: 1 << 20}
	with := func(f func(*Start)) Request {
		s := good
		f(&s)
		return Request{Start: &s}
	}
	for name, m := range map[string]Request{
		"nothing":       {},
		"two things":    {Drain: true, Signal: &Signal{Attempt: attempt, Number: 1}},
		"no command":    with(func(s *Start) { s.Command = nil }),
		"spare":         with(func(s *Start) { s.Spare = "../x" }),
		"both":          with(func(s *Start) { s.Script = "x" }),
		"empty program": with(func(s *Start) { s.Command = []string{""} }),
		"zero byte":     with(func(s *Start) { s.Env = []string{"A=\x00"} }),
		"relative":      with(func(s *Start) { s.Workdir = "x" }),
		"no lease":      with(func(s *Start) { s.Hold = false }),
		"path attempt":  with(func(s *Start) { s.Attempt = "../../etc" }),
		"negative":      with(func(s *Start) { s.Limit = -1 }),
		"overflow":      with(func(s *Start) { s.Grace = 1<<63 - 1 }),
		"words":         with(func(s *Start) { s.Env = make([]string, maxWords) }),
		"device memory": with(func(s *Start) { s.Limits.DeviceMemory = []DeviceMemory{{PCI: "0000:01:00.0"}} }),
		"devices":       with(func(s *Start) { s.Limits.DeviceMemory = make([]DeviceMemory, maxDevices+1) }),
		"signal":        {Signal: &Signal{Attempt: attempt, Number: 65}},
		"extend":        {Extend: []Extension{{Attempt: "x", Deadline: 1}}},
		"stop":          {Stop: &Stop{Attempt: attempt, Grace: -1}},
	} {
		frame, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadRequest(bytes.NewReader(frame)); err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
		}
		if _, err := Frame(m); err == nil {
			t.Errorf("%s: a frame was made", name)
		}
	}
}

// TestLargestStartFits checks that a script of the largest legal size can be sent, whatever characters it has.
func TestLargestStartFits(t *testing.T) {
	for name, letter := range map[string]string{"plain": "x", "markup": "<", "control": "\x01", "not text": "\xff", "line ends": "\u2028"} {
		spec := job.DefaultSpec()
		spec.Script = "#"
		one, err := job.EncodeSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		spec.Script += letter
		two, err := job.EncodeSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		spec.Script += strings.Repeat(letter, (job.MaxSpecBytes-len(two))/(len(two)-len(one)))
		m := Request{Start: &Start{
			Attempt: attempt, Script: spec.Script, User: "u", Hold: true, OutputLimit: 1 << 20, Env: slices.Repeat([]string{"A=" + strings.Repeat("x", 1000)}, job.MaxEnv),
		}}
		frame, err := Frame(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := ReadRequest(bytes.NewReader(frame)); err != nil || got.Start.Attempt != attempt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFramesAreBounded(t *testing.T) {
	if _, err := Frame(Request{Stop: &Stop{Attempt: attempt, Reason: strings.Repeat("x", maxFrame)}}); err == nil {
		t.Error("a frame over the bound was made")
	}
	long := binary.BigEndian.AppendUint32(nil, maxFrame+1)
	if _, err := ReadRequest(bytes.NewReader(long)); err == nil {
		t.Error("a frame over the bound was read")
	}
	// A frame that only announces a large length uses no memory for it.
	announced := binary.BigEndian.AppendUint32(nil, maxFrame)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ReadRequest(bytes.NewReader(announced)); err == nil {
		t.Error("an empty frame was read")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > maxFrame/2 {
		t.Errorf("%d bytes taken for an empty frame, want at most %v", took, maxFrame/2)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, m := range []Request{
		{Start: &Start{Attempt: attempt, Command: []string{"a"}, User: "u", Hold: true, OutputLimit: 1 << 20}},
		{Stop: &Stop{Attempt: attempt}},
		{Extend: []Extension{{Attempt: attempt, Deadline: 1}}},
		{Drain: true},
		{Leave: true},
	} {
		frame, err := Frame(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadRequest(bytes.NewReader(b))
		if err != nil {
			return
		}
		frame, err := Frame(m)
		if err != nil {
			t.Fatalf("a frame that was read cannot be written: %v", err)
		}
		if _, err := ReadRequest(bytes.NewReader(frame)); err != nil {
			t.Fatalf("a frame that was read cannot be read again: %v", err)
		}
	})
}

func FuzzReadReport(f *testing.F) {
	frame, err := Frame(Report{Welcome: &Welcome{Running: []Started{{Attempt: attempt, PID: 1}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ReadReport(bytes.NewReader(b)); err == nil && m.Validate() != nil {
			t.Fatalf("%+v is not valid, but was read", m)
		}
	})
}

// olderRequest is a request of versions before the skew was added.
type olderRequest struct {
	Start *struct {
		Attempt  string        `json:"attempt"`
		Deadline time.Duration `json:"deadline"`
	} `json:"start"`
	Extend []struct {
		Attempt  string        `json:"attempt"`
		Deadline time.Duration `json:"deadline"`
	} `json:"extend"`
}

func (olderRequest) Validate() error { return nil }

// TestOlderVersionsReadFramesWithoutSkew reads frames of this version like an older version, and the reverse.
func TestOlderVersionsReadFramesWithoutSkew(t *testing.T) {
	t.Parallel()
	extend, err := Frame(Request{Extend: []Extension{{Attempt: attempt, Deadline: 7, Skew: -3}}})
	if err != nil {
		t.Fatal(err)
	}
	start, err := Frame(Request{Start: &Start{Attempt: attempt, Command: []string{"a"}, User: "u", Deadline: 5, Skew: 1 << 60, OutputLimit: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range [][]byte{extend, start} {
		var old olderRequest
		if err := readFrame(bytes.NewReader(frame), &old); err != nil {
			t.Fatal(err)
		}
		if len(old.Extend) == 1 && old.Extend[0].Deadline != 7 || old.Start != nil && old.Start.Deadline != 5 {
			t.Errorf("an older runner reads %+v, want the deadlines 7 and 5", old)
		}
	}
	older := `{"extend":[{"attempt":"` + attempt + `","deadline":7}]}`
	m, err := ReadRequest(strings.NewReader("\x00\x00\x00" + string(rune(len(older))) + older))
	if err != nil || len(m.Extend) != 1 || m.Extend[0] != (Extension{Attempt: attempt, Deadline: 7}) {
		t.Errorf("from an older daemon: %+v, %v, want no error, 1 Extend and Extend[0] %v", m, err, (Extension{Attempt: attempt, Deadline: 7}))
	}
}
