package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func inDir(dir string) Config {
	cfg := DefaultConfig()
	cfg.Dir = dir
	return cfg
}

// run runs the log until the test ends, as the daemon does.
func run(t *testing.T, l *Log) {
	t.Helper()
	done := make(chan error)
	go func() { done <- l.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func find(t *testing.T, l *Log, q Query) []Entry {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1 << 20
	}
	found, err := l.Find(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func by(uid int, a Action, object string) Entry {
	return Entry{Action: a, Outcome: OK, From: Socket, UID: &uid, User: fmt.Sprintf("user%d", uid), Object: object}
}

func total(all []Entry) (n int) {
	for i := range all {
		n += all[i].Count
	}
	return n
}

func TestEntriesAreFoundByFilters(t *testing.T) {
	dir := t.TempDir()
	l := open(t, inDir(dir))
	for i := range 5 {
		l.Record(by(1000+i%2, Submit, fmt.Sprintf("job%d", i)))
	}
	l.Record(by(1000, Cancel, "job0"))
	if got := find(t, l, Query{User: "user1000", Action: Submit}); len(got) != 3 || got[0].Object != "job4" || got[2].Object != "job0" || *got[0].UID != 1000 {
		t.Errorf("entries of user1000: got %+v, want job4 to job0", got)
	}
	l.Record(Entry{Action: Hold, Outcome: OK, From: HTTP, User: `<"ev\il">`})
	if got := find(t, l, Query{User: `<"ev\il">`}); len(got) != 1 || got[0].Action != Hold {
		t.Errorf("entries of a user with special characters: got %+v, want one hold", got)
	}
	if got := find(t, l, Query{Action: Hold, User: "user1000"}); len(got) != 0 {
		t.Errorf("holds of user1000: got %+v, want none", got)
	}
	if got := find(t, l, Query{Limit: 3})[1:]; len(got) != 2 || got[0].Action != Cancel {
		t.Errorf("the newest entries: got %+v, want 2 with cancel first", got)
	}
	if got := find(t, l, Query{Since: time.Now().Add(time.Hour)}); len(got) != 0 {
		t.Errorf("entries of the future: got %+v, want 0", got)
	}
	info, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: got %v, %v, want 0600", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := find(t, open(t, inDir(dir)), Query{}); len(got) != 7 {
		t.Errorf("after a restart: got %d entries, want 7: %+v", len(got), got)
	}
}

// No text puts another line, an escape sequence or a reordering of letters into the file or before its readers.
func TestHostileTextIsEscaped(t *testing.T) {
	dir := t.TempDir()
	l := open(t, inDir(dir))
	const evil = "a\n{\"action\":\"submit\"}\x1b[2J\u202eb\u009b\xff\\"
	l.Record(Entry{
		Action: Cancel, Outcome: Refused, From: Peer, Peer: job.Peer(evil), PeerName: evil, User: evil, Reason: evil, Code: evil, Object: evil, Last: evil,
		Address: evil, Details: map[string]string{evil: evil, "long": strings.Repeat("x", 1<<20)},
	})
	got := find(t, l, Query{})
	text, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil || bytes.Count(text, []byte("\n")) != 1 || len(got) != 1 || len(text) > 4096 {
		t.Fatalf("got %d entries, %v, want one of at most 4096 bytes:\n%q", len(got), err, text)
	}
	for _, bad := range []string{"\x1b", "\u202e", "\u009b", "\xff"} {
		if bytes.Contains(text, []byte(bad)) {
			t.Errorf("the file has %q", bad)
		}
	}
	// the decoded texts are harmless, too
	const want = `a\n{"action":"submit"}\x1b[2J\u202eb\u009b\ufffd\\`
	if got[0].User != want || string(got[0].Peer) != want || got[0].Reason != want || got[0].Object != want || got[0].Details[want] != want {
		t.Errorf("got %+v, want %q in all texts", got[0], want)
	}
	line, err := json.Marshal(got[0])
	if err != nil || len(line) > maxLine {
		t.Errorf("got a line of %d bytes, %v, want at most %d", len(line), err, maxLine)
	}
}

// The files are bounded in size and in number; the newest entries stay.
func TestRotationBoundsTheFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, FileBytes: minFile, Old: 3}
	l := open(t, cfg)
	n := 0
	for uid := range 40 { // so many users, because each has an allowance
		for range 40 {
			l.Record(by(uid, Submit, fmt.Sprint(n)))
			n++
		}
		l.flush(false)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 4 {
		t.Fatalf("got files %v, %v, want 4", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > minFile || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, %v, want at most the bound, with mode 0600", name, info, err)
		}
	}
	got := find(t, l, Query{})
	if len(got) < 200 || len(got) > n/2 {
		t.Fatalf("got %d of %d entries, want at least 200 and at most half", len(got), n)
	}
	for i := range got {
		if got[i].Object != fmt.Sprint(n-1-i) {
			t.Fatalf("entry %d: got %s, want %d", i, got[i].Object, n-1-i)
		}
	}
}

// A rotation that fails loses entries, which are counted, but no file.
func TestFailedRotationLosesNoFile(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, FileBytes: minFile, Old: 2})
	fill := func(uid, n int) {
		for i := range n {
			l.Record(by(uid, Submit, fmt.Sprint(i)))
		}
		l.flush(false)
	}
	for uid := range 5 {
		fill(uid, 60)
	}
	before := find(t, l, Query{})
	blocked := filepath.Join(dir, Name+".new")
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for uid := range 20 {
		fill(uid, 60)
	}
	if lost := l.Losses(); !lost.Now || lost.Entries < 1000 {
		t.Errorf("got losses %+v, want at least 1000, still going on", lost)
	}
	after := find(t, l, Query{})
	if len(after) < len(before) || after[len(after)-1].Object != before[len(before)-1].Object {
		t.Errorf("got %d entries, then %d, want no fewer, with the same oldest one", len(before), len(after))
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	lost := l.Losses().Entries
	fill(90, 1)
	got := find(t, l, Query{Limit: 2})
	if got[0].User != "user90" || got[1].Action != Lost || got[1].Count != lost || got[1].First == nil {
		t.Errorf("lost %d: got %+v, want the new entry and the count", lost, got)
	}
}

// A link in place of the file is not followed.
func TestLinkIsRefused(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.Symlink(secret, filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(inDir(dir), quiet); err == nil {
		t.Error("the link was followed")
	}
}

// A line that was cut off by a crash is no entry, and does not spoil later entries.
func TestCutOffLineSpoilsNoLaterEntry(t *testing.T) {
	dir := t.TempDir()
	l := open(t, inDir(dir))
	l.Record(by(1, Submit, "whole"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, Name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(text) {
		if err := os.WriteFile(path, append(bytes.Clone(text), text[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, inDir(dir))
		l.Record(by(1, Cancel, "later"))
		want := 2
		if cut == len(text)-1 {
			want = 3 // only the end of the line is missing
		}
		if got := find(t, l, Query{}); len(got) != want || got[0].Object != "later" || got[want-1].Object != "whole" {
			t.Fatalf("cut at %d: got %+v, want %d entries", cut, got, want)
		}
	}
}

// fullDisk takes some bytes, and then no more until it has space again.
type fullDisk struct {
	io.Writer
	room int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	if len(b) <= d.room {
		d.room -= len(b)
		return d.Writer.Write(b)
	}
	n, err := d.Writer.Write(b[:d.room])
	d.room = 0
	return n, errors.Join(err, syscall.ENOSPC)
}

// With a full disk the daemon goes on. Lost entries are counted, and their number is written when there is space again.
func TestLossesOnAFullDiskAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		l, err := Open(inDir(t.TempDir()), slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		disk := &fullDisk{Writer: l.files.file, room: 300}
		l.files.out = disk
		run(t, l)
		for i := range 10 {
			l.Record(by(1, Submit, fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		lost := l.Losses()
		if !lost.Now || lost.Entries < 8 || !strings.Contains(lost.Reason, "no space left") {
			t.Errorf("got losses %+v, want at least 8 for lack of space", lost)
		}
		if n := strings.Count(said.String(), "cannot be written"); n != 1 {
			t.Errorf("got %d warnings, want 1:\n%s", n, said.String())
		}
		disk.room = 1 << 20
		l.Record(by(1, Submit, "last"))
		time.Sleep(time.Second)
		got := find(t, l, Query{})
		if now := l.Losses(); now.Now || now.Entries != lost.Entries {
			t.Errorf("got losses %+v, want the same number, ended", now)
		}
		if len(got) != 10-lost.Entries+2 || got[0].Object != "last" || got[1].Action != Lost || got[1].Count != lost.Entries || !strings.Contains(got[1].Reason, "no space left") {
			t.Errorf("got %+v, want the last entry and the count of those that were lost", got)
		}
		if !strings.Contains(said.String(), "can be written again") {
			t.Errorf("got the log %s, want that the file can be written again", said.String())
		}
	})
}

// A user who acts without end causes few entries, and the entries of others stay.
func TestFloodOfOneUserCausesFewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Dir: t.TempDir(), FileBytes: 256 << 10, Old: 7}
		l := open(t, cfg)
		run(t, l)
		l.Record(by(7, Revoke, "the trail"))
		const hours, each = 24, 50_000
		for h := range hours {
			for i := range each {
				a := []Action{Submit, Cancel, Hold, Release, Requeue, Upload, Files, Drain}[i%8]
				l.Record(by(1000, a, fmt.Sprintf("%d.%d", h, i)))
			}
			time.Sleep(time.Hour)
		}
		l.Record(by(7, Restore, "the end"))
		got := find(t, l, Query{})
		if n := total(got); n != hours*each+2 {
			t.Errorf("got %d acts, want %d", n, hours*each+2)
		}
		if got[0].Object != "the end" || got[len(got)-1].Object != "the trail" {
			t.Errorf("got %+v ... %+v, want the last and the first entry", got[0], got[len(got)-1])
		}
		if len(got) > 25_000 {
			t.Errorf("got %d entries, want at most 25000", len(got))
		}
		if n := len(find(t, l, Query{User: "user1000", Action: Drain})); n < 200 {
			t.Errorf("got %d entries of a rare act among frequent ones, want at least 200", n)
		}
	})
}

// A revocation has an entry of its own among a million submissions of the same operator.
func TestFloodHidesNoEntryOfAnotherClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, inDir(t.TempDir()))
		for i := range 20_000 {
			l.Record(by(0, Submit, fmt.Sprint(i)))
			if i == 19_000 {
				l.Record(by(0, Revoke, "somebody"))
			}
		}
		if got := find(t, l, Query{Action: Revoke}); len(got) != 1 || got[0].Object != "somebody" {
			t.Errorf("got %+v, want one revocation of somebody", got)
		}
		if got := find(t, l, Query{Action: Submit}); len(got) != allowances[changes].burst {
			t.Errorf("got %d entries at once, want %v", len(got), allowances[changes].burst)
		}
		l.flush(true)
		if got := find(t, l, Query{Limit: 1}); got[0].Count != 19_000 || got[0].Object != "1000" || got[0].Last != "19999" || got[0].First == nil {
			t.Errorf("got %+v, want one entry for 19000 acts", got)
		}
	})
}

// Strangers have one allowance, however many they are. Their networks are listed separately up to a bound.
func TestStrangersShareOneAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, inDir(t.TempDir()))
		run(t, l)
		refused := func(ip netip.Addr) {
			l.Record(Entry{Action: Hello, Outcome: Refused, Code: "denied", From: Network, IP: ip, Address: ip.String(), Peer: job.Peer("p" + ip.String())})
		}
		for i := range 2000 {
			refused(netip.AddrFrom4([4]byte{10, byte(i / 250), 0, byte(i)}))
		}
		time.Sleep(time.Minute)
		l.flush(true)
		got := find(t, l, Query{})
		if len(got) > ofStrangers.burst+8 || total(got) != 2000 {
			t.Errorf("got %d entries for %d acts, want few for all 2000", len(got), total(got))
		}
		networks := map[string]int{}
		for _, e := range got[:8] {
			networks[e.Address[:5]] += e.Count
		}
		if len(networks) != 8 {
			t.Errorf("got %d networks, want 8: %v", len(networks), networks)
		}
		for i := range 200_000 {
			refused(netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 1}))
		}
		l.Record(by(1, Cancel, "mine"))
		before := len(got)
		l.flush(true)
		if got = find(t, l, Query{}); len(got) > before+strangerFolds+3 || total(got) != 202_001 {
			t.Errorf("got %d entries for %d acts, want few for all 202001", len(got), total(got))
		}
		if len(l.actors) != 2 {
			t.Errorf("got %d actors, want 2", len(l.actors))
		}
	})
}

// The number of actors is bounded, and they are forgotten after a time. The names of users that a member gives do not
// increase its allowance.
func TestActorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, inDir(t.TempDir()))
		run(t, l)
		for i := range 100_000 {
			l.Record(Entry{Action: Cancel, Outcome: OK, From: Peer, Peer: "rogue", User: fmt.Sprintf("user%d", i)})
		}
		l.flush(true)
		if got := find(t, l, Query{}); len(got) != allowances[changes].burst+maxFolds+1 || total(got) != 100_000 {
			t.Errorf("got %d entries for %d acts, want few for all 100000", len(got), total(got))
		}
		for i := range 5000 {
			l.Record(by(i, Submit, ""))
		}
		if len(l.actors) > maxActors+1 {
			t.Errorf("got %d actors, want at most %v", len(l.actors), maxActors+1)
		}
		time.Sleep(forgetAfter + 2*foldEvery)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.actors) != 0 {
			t.Errorf("got %d actors after hours, want 0", len(l.actors))
		}
	})
}

// hangingDisk writes nothing until it is released.
type hangingDisk struct {
	io.Writer
	goOn chan struct{}
}

func (d hangingDisk) Write(b []byte) (int, error) {
	<-d.goOn
	return d.Writer.Write(b)
}

// Recording does not wait for a disk that hangs. Entries that do not fit are counted.
func TestRecordDoesNotWaitForAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, inDir(t.TempDir()))
		run(t, l)
		hang := hangingDisk{l.files.file, make(chan struct{})}
		l.files.out = hang
		began := time.Now()
		for i := range 20_000 {
			l.Record(by(i/1000, Submit, fmt.Sprint(i)))
			if i == 0 {
				synctest.Wait()
				time.Sleep(time.Second) // the writer hangs now
				began = time.Now()
			}
		}
		if took := time.Since(began); took != 0 || len(l.pending) != maxPending {
			t.Errorf("took %s with %d pending, want 0 with %d", took, len(l.pending), maxPending)
		}
		close(hang.goOn)
		time.Sleep(time.Second)
		got := find(t, l, Query{})
		lost := l.Losses().Entries
		if lost != 20_000-maxPending-1 || total(got) != 20_000 {
			t.Errorf("got %d lost and %d acts, want %d and 20000", lost, total(got), 20_000-maxPending-1)
		}
	})
}

// A user who searches without end does not make others wait for long.
func TestConcurrentSearchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, inDir(t.TempDir()))
		for range scans {
			l.scans <- struct{}{}
		}
		began := time.Now()
		if _, err := l.Find(t.Context(), Query{Limit: 1}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != scanWait {
			t.Errorf("after %s: got %v, want a deadline after scanWait", time.Since(began), err)
		}
		<-l.scans
		if _, err := l.Find(t.Context(), Query{Limit: 1}); err != nil {
			t.Error(err)
		}
	})
}

func TestActionsHaveATextAndAClass(t *testing.T) {
	for a, row := range actions {
		if !a.Known() || row.what == "" || row.class >= classCount || Clean(string(a), maxName) != string(a) {
			t.Errorf("%q: got %+v, want a text, a class and a clean name", a, row)
		}
	}
	if Action("nonsense").Known() {
		t.Error("an unknown action counts as known")
	}
}

// Whatever a file contains, reading ends, and finds the same entries backwards and forwards.
func FuzzRead(f *testing.F) {
	line := `{"time":"2026-01-02T03:04:05Z","action":"submit","outcome":"ok","from":"socket","count":1}` + "\n"
	for _, seed := range []string{"", "\n", line, line + line[:40], "x\n" + line, strings.Repeat(" ", readBytes) + "\n" + line, line + strings.Repeat("x", 3*readBytes), line + strings.Repeat("y", maxLine-1) + "\n\n" + line} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want []Entry
		for part := range bytes.SplitSeq(text, []byte{'\n'}) {
			if e, ok := parse(part); ok && len(part) <= maxLine {
				want = append(want, e)
			}
		}
		got, err := Query{Limit: len(text) + 1}.search(t.Context(), bytes.NewReader(text), int64(len(text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("got %d entries, want %d", len(got), len(want))
		}
		for i := range got {
			if w := want[len(want)-1-i]; !got[i].Time.Equal(w.Time) || got[i].Object != w.Object {
				t.Fatalf("entry %d: got %+v, want %+v", i, got[i], w)
			}
		}
	})
}

// BenchmarkRecord measures the cost of an entry for the one that acts, with the writer beside it.
func BenchmarkRecord(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Dir = b.TempDir()
	l, err := Open(cfg, quiet)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- l.Run(b.Context()) }()
	for i := 0; b.Loop(); i++ {
		l.Record(by(i%500, Submit, "1268ezjnc8-mdxchras0wg7e"))
	}
	b.StopTimer()
	b.Cleanup(func() { <-done; l.Close() })
}

// BenchmarkFind measures a search through full files that finds nothing.
func BenchmarkFind(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Dir = b.TempDir()
	l, err := Open(cfg, quiet)
	if err != nil {
		b.Fatal(err)
	}
	e := by(1000, Submit, "1268ezjnc8-mdxchras0wg7e")
	e.Time, e.PID, e.Details = time.Now(), 12345, map[string]string{"name": "train"}
	e.tidy()
	line, _, _ := encode([]Entry{e})
	for n := int64(0); n < cfg.FileBytes*int64(cfg.Old+1); n += int64(len(line)) * 1000 {
		if err := l.files.append(bytes.Repeat(line, 1000)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(line)), "bytes/entry")
	for b.Loop() {
		if found, err := l.Find(b.Context(), Query{User: "nobody", Limit: 100}); err != nil || len(found) != 0 {
			b.Fatal(len(found), err)
		}
	}
}
