package nvml

// Faults, and children that report errors.

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
)

func TestFaultsContinueWithNextChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		xid := func(n uint64) func(life) {
			return func(l life) {
				l.say(p.t, message{Hello: &hello{}})
				l.say(p.t, message{Fault: &gpu.Fault{UUID: "GPU-0", Code: n}})
				time.Sleep(time.Second) // then it dies
			}
		}
		p.scripts = []func(life){xid(79), xid(48), p.healthy}
		d, _ := stage(t, p)
		ctx, stop := context.WithCancel(t.Context())
		faults, err := d.Faults(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []uint64{79, 48} {
			if f := <-faults; f.Code != want {
				t.Errorf("fault %v, want Xid %d", f, want)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if p.starts != 3 {
			t.Errorf("%d children, want 3", p.starts)
		}
		stop()
		if f, open := <-faults; open {
			t.Errorf("got another fault: %v", f)
		}
	})
}

func TestUnreadFaultsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for range maxFaults + 5 {
				l.say(p.t, message{Fault: &gpu.Fault{Code: 79}})
			}
			l.answer(p.t, twoGPUs)
		}}
		d, log := stage(t, p)
		if _, err := d.Faults(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustList(t, d, 2) // the child's further output is read
		synctest.Wait()
		if lines(log) != 5 || !strings.Contains(log.String(), "dropped") {
			t.Errorf("want 5 lines with \"dropped\" in the log: %s", log)
		}
	})
}

func TestWrongAnswersAreRefused(t *testing.T) {
	twice := []gpu.Device{twoGPUs[0], twoGPUs[0]}
	for name, script := range map[string]func(*testing.T, life){
		"no hello":     func(t *testing.T, l life) { l.say(t, message{Reply: &reply{ID: 1}}) },
		"garbage":      func(_ *testing.T, l life) { io.WriteString(l.out, "Segmentation fault\n") },
		"endless line": func(_ *testing.T, l life) { l.out.Write(bytes.Repeat([]byte("x"), maxMessage+1)) },
		"nothing":      func(_ *testing.T, l life) { io.WriteString(l.out, "{}\n") },
		"two hellos": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			l.say(t, message{Hello: &hello{}})
		},
		"library error": func(t *testing.T, l life) { l.say(t, message{Hello: &hello{Error: "version mismatch"}}) },
		"same device twice": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			l.answer(t, twice)
		},
		"request failed": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			for r := range l.requests {
				l.say(t, message{Reply: &reply{ID: r.ID, Error: "count the GPUs: unknown error"}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := stage(t, &play{scripts: []func(life){func(l life) { script(t, l) }}})
				if devices, err := d.List(t.Context()); err == nil {
					t.Errorf("accepted %v", devices)
				}
			})
		})
	}
}

func TestNotesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				l.say(p.t, message{Reply: &reply{ID: r.ID, Devices: twoGPUs, Notes: []string{"GPU 2: lost"}}})
			}
		}}
		d, log := stage(t, p)
		for range 5 {
			mustList(t, d, 2)
		}
		if lines(log) != 1 || !strings.Contains(log.String(), "GPU 2: lost") {
			t.Errorf("want one line with \"GPU 2: lost\" in the log: %s", log)
		}
	})
}

// FuzzRead checks that the daemon ends a child whose output it can no longer read, whatever the child writes.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"hello\":{}}\n{\"reply\":{\"id\":1,\"devices\":[{\"uuid\":\"GPU-0\"}]}}\n{\"fault\":{\"code\":79}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		killed := false
		c := &child{out: io.NopCloser(bytes.NewReader(text)), kill: func() { killed = true }}
		a := startAgent(c, func(gpu.Fault) {})
		<-a.gone
		if a.why == nil || !killed {
			t.Errorf("the reason is %v, killed: %v, want a reason and true", a.why, killed)
		}
		select {
		case r := <-a.replies:
			_ = checkDevices(r.Devices)
		default:
		}
	})
}
