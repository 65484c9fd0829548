package nvml

// Changes that the driver notices while the daemon runs: another library, another kernel driver, a lost card.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

// load makes the kernel have a driver of this version with these cards.
func load(t *testing.T, d *Driver, version string, cards ...string) {
	t.Helper()
	dir := filepath.Join(d.root, "proc/driver/nvidia")
	err := os.RemoveAll(dir)
	for _, card := range append(cards, "") {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "gpus", card), 0o700)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "version"), []byte(version), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDriverThatIsLoadedLaterIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none, p.healthy}
		d, _ := stage(t, p)
		d.root = t.TempDir()
		mustList(t, d, 0)
		time.Sleep(30 * time.Second)
		if mustList(t, d, 0); p.starts != 1 {
			t.Errorf("%d children on a host without a driver, want 1", p.starts)
		}
		load(t, d, "580", "0000:01:00.0")
		mustList(t, d, 2)
	})
}

// The kernel's driver is loaded, and its library is installed later.
func TestLibraryThatIsInstalledLaterIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none, p.healthy}
		d, _ := stage(t, p)
		d.root = t.TempDir()
		load(t, d, "580")
		mustList(t, d, 0)
		time.Sleep(30 * time.Second)
		mustList(t, d, 2)
	})
}

func TestChangeOfTheDriverStartsANewChild(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, d *Driver, library string) error{
		"nothing": func(*testing.T, *Driver, string) error { return nil },
		"card":    func(t *testing.T, d *Driver, _ string) error { load(t, d, "580", "a", "b"); return nil },
		"kernel":  func(t *testing.T, d *Driver, _ string) error { load(t, d, "590", "a"); return nil },
		"library": func(_ *testing.T, _ *Driver, l string) error {
			if err := os.WriteFile(l+".new", []byte("590"), 0o600); err != nil {
				return err
			}
			return os.Rename(l+".new", l)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
			if err := os.WriteFile(library, []byte("580"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := &play{}
			p.scripts = []func(life){func(l life) {
				l.say(t, message{Hello: &hello{}})
				for r := range l.requests {
					l.say(t, message{Reply: &reply{ID: r.ID, Devices: twoGPUs, Library: library}})
				}
			}}
			d, log := stage(t, p)
			d.root = t.TempDir()
			load(t, d, "580", "a")
			for range 100 {
				mustList(t, d, 2)
				time.Sleep(30 * time.Second)
			}
			if err := change(t, d, library); err != nil {
				t.Fatal(err)
			}
			want := 2
			if name == "nothing" {
				want = 1
			}
			for range 3 {
				if mustList(t, d, 2); p.starts != want || lines(log) != 0 {
					t.Errorf("%s: %d children, want %d; log: %s", name, p.starts, want, log)
				}
			}
		})
	}
}

// Only another child finds a card that was lost. A card that stays lost does not cost a new child every time.
func TestLostCardIsSearchedByANewChild(t *testing.T) {
	lost := []gpu.Status{
		{UUID: twoGPUs[0].UUID, Health: gpu.Healthy},
		{UUID: twoGPUs[1].UUID, Utilization: -1, Health: gpu.Unhealthy, Detail: "lost", Unread: true},
	}
	for name, answers := range map[string]reply{
		"in the list":   {Devices: twoGPUs[:1], Notes: []string{"GPU 1: lost"}, Statuses: lost[:1]},
		"in the status": {Devices: twoGPUs, Statuses: lost},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){func(l life) {
				l.say(t, message{Hello: &hello{}})
				for r := range l.requests {
					out := answers
					if out.ID = r.ID; r.Op == opList {
						out.Statuses = nil
					} else {
						out.Devices, out.Notes = nil, nil
					}
					l.say(t, message{Reply: &out})
				}
			}}
			d, _ := stage(t, p)
			d.root = t.TempDir()
			for range 120 { // an hour
				mustList(t, d, len(answers.Devices))
				_ = health(t, d)
				time.Sleep(30 * time.Second)
			}
			if p.starts < 5 || p.starts > 15 {
				t.Errorf("%s: %d children in an hour for a card that stays lost, want at least 5 and at most 15", name, p.starts)
			}
			p.scripts = []func(life){p.healthy}
			time.Sleep(maxSkip)
			mustList(t, d, 2)
			if got := health(t, d); got != "healthy healthy" {
				t.Errorf(`%s: once it is found: %s, want "healthy healthy"`, name, got)
			}
		})
	}
}

var _ gpu.Renewer = (*Driver)(nil)

// Anew ends the pauses after which a lost card, or a library that failed or was missing, is tried again. A working
// child goes on.
func TestRenewEndsPauses(t *testing.T) {
	for name, c := range map[string]struct {
		script func(p *play, t *testing.T) func(l life)
		lists  int // the number of cards before
	}{
		"lost card": {func(_ *play, t *testing.T) func(l life) {
			return func(l life) {
				l.say(t, message{Hello: &hello{}})
				for r := range l.requests {
					out := reply{ID: r.ID}
					if r.Op == opList {
						out.Devices, out.Notes = twoGPUs[:1], []string{"GPU 1: lost"}
					} else {
						out.Statuses = []gpu.Status{{UUID: twoGPUs[0].UUID, Health: gpu.Healthy}}
					}
					l.say(t, message{Reply: &out})
				}
			}
		}, 1},
		"no driver": {func(p *play, _ *testing.T) func(l life) { return p.none }, 0},
		"failed": {func(_ *play, t *testing.T) func(l life) {
			return func(l life) { l.say(t, message{Hello: &hello{Error: "ERROR_LIB_RM_VERSION_MISMATCH"}}) }
		}, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){c.script(p, t)}
			d, _ := stage(t, p)
			d.root = t.TempDir()
			list := func() int {
				all, err := d.List(t.Context())
				synctest.Wait() // a killed child ends
				if err != nil {
					return -1
				}
				return len(all)
			}
			for range 20 { // the pauses become long
				_ = list()
				_, _ = d.Status(t.Context())
				time.Sleep(time.Minute)
			}
			_ = list()
			p.scripts = []func(life){p.healthy}
			if n := list(); n != c.lists {
				t.Fatalf("%s: %d cards during the pause, want %d", name, n, c.lists)
			}
			if err := d.Anew(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := list(); n != 2 {
				t.Errorf("%s: %d cards when it is to look anew, want 2", name, n)
			}
			starts := p.starts
			if err := d.Anew(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := list(); n != 2 || p.starts != starts {
				t.Errorf("%s: %d cards, want 2; %d more children, want none", name, n, p.starts-starts)
			}
		})
	}
}

// A listed card stays listed while a new child sees it and cannot read its name, as a lost card has none.
func TestLostCardStaysListedByANewChild(t *testing.T) {
	three := gputest.Devices(3, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
	for name, c := range map[string]struct {
		found []gpu.Device
		notes []string
		want  string
	}{
		"lost":                {[]gpu.Device{three[0], three[2]}, []string{"GPU 1: lost"}, "healthy unknown healthy"},
		"taken out":           {[]gpu.Device{three[0], three[2]}, nil, "healthy healthy"},
		"one of two is lost":  {three[:1], []string{"GPU 1: lost"}, "healthy"}, // and it is unknown which
		"all found":           {three, nil, "healthy healthy healthy"},
		"all lost but one":    {three[2:], []string{"GPU 0: lost", "GPU 1: lost"}, "unknown unknown healthy"},
		"all found, one note": {three, []string{"GPU 1: no links"}, "healthy healthy healthy"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){
				func(l life) { l.say(t, message{Hello: &hello{}}); l.answer(t, three) },
				func(l life) {
					l.say(t, message{Hello: &hello{}})
					for r := range l.requests {
						out := reply{ID: r.ID}
						if r.Op == opList {
							out.Devices, out.Notes = c.found, c.notes
						} else {
							for _, is := range c.found {
								out.Statuses = append(out.Statuses, gpu.Status{UUID: is.UUID, Health: gpu.Healthy})
							}
						}
						l.say(t, message{Reply: &out})
					}
				},
			}
			d, _ := stage(t, p)
			d.root = t.TempDir()
			load(t, d, "580", "a")
			mustList(t, d, len(three))
			load(t, d, "590", "a")
			for range 120 { // an hour
				mustList(t, d, len(strings.Fields(c.want)))
				if got := health(t, d); got != c.want {
					t.Fatalf("%s: %s, want %s", name, got, c.want)
				}
				time.Sleep(30 * time.Second)
			}
		})
	}
}
