package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
)

// deaths serves POST /v1/nodes/n1/declare-dead and counts its calls.
type deaths struct {
	partial      string // names in JSON
	tasks        int
	asked, acted atomic.Int32
}

func (d *deaths) serve(w http.ResponseWriter, r *http.Request) {
	var in api.DeclareDeadRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	d.acted.Add(1)
	if in.DryRun {
		d.acted.Add(-1)
		d.asked.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"schema":"muster.death/v1","id":"12D3KooWGone","name":"n1","dry_run":%v,"tasks":%d,"daemons":%d,"last_seen_at":"2026-01-02T03:04:05Z","partial":[%s]}`,
		in.DryRun, d.tasks, (d.tasks+1)/2, d.partial)
}

func (d *deaths) daemon(t *testing.T) *fake {
	return newFake(t, map[string]http.HandlerFunc{"POST /v1/nodes/n1/declare-dead": d.serve, "POST /v1/nodes/12D3KooWGone/declare-dead": d.serve})
}

func TestDeclareDeadReportsTasksAndSilentDaemons(t *testing.T) {
	for _, c := range []struct {
		d    *deaths
		code int
		want string
	}{
		{&deaths{tasks: 3}, 0, "n1 declared dead: 3 tasks given up by 2 daemons\n"},
		{&deaths{tasks: 1}, 0, "n1 declared dead: 1 task given up by 1 daemon\n"},
		{&deaths{}, 0, "n1 declared dead: it had no tasks\n"},
		{&deaths{partial: `"dev3"`}, 1, "n1 declared dead: it had no tasks\nmuster: dev3 did not answer: run it again when it is back\n"},
		{&deaths{tasks: 3, partial: `"dev2","dev\u001b3"`}, 1, "n1 declared dead: 3 tasks given up by 2 daemons\nmuster: dev2, dev·3 did not answer: run it again when they are back\n"},
	} {
		r := c.d.daemon(t).muster("node", "declare-dead", "n1") // without a terminal there is no question
		if r.code != c.code || r.err != c.want || r.stdout != "" || c.d.asked.Load() != 0 || c.d.acted.Load() != 1 {
			t.Errorf("exit %d, %q %q, asked %d and acted %d times; want %d, %q", r.code, r.stdout, r.err, c.d.asked.Load(), c.d.acted.Load(), c.code, c.want)
		}
	}
	r := (&deaths{tasks: 3, partial: `"dev3"`}).daemon(t).muster("node", "declare-dead", "n1", "--json")
	var d api.Death
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != 1 || d.Tasks != 3 || d.Partial[0] != "dev3" || !strings.HasPrefix(r.err, "muster: dev3 did not answer") {
		t.Errorf("--json: exit %d, %q, %q, %v, want 1 with 3 tasks, without dev3", r.code, r.stdout, r.err, err)
	}
	f := newFake(t, map[string]http.HandlerFunc{
		"POST /v1/nodes/n1/declare-dead": problem(http.StatusConflict, "conflict", `"detail": "node n1: conflict: it answers n2, so it is not dead: drain it instead"`),
	})
	if r := f.muster("node", "declare-dead", "n1"); r.code != 1 || r.err != "muster: node n1: conflict: it answers n2, so it is not dead: drain it instead\n" {
		t.Errorf("a node that answers: exit %d, %q, want 1 and the hint to drain it", r.code, r.err)
	}
}

// On a terminal the verb asks, and only yes confirms.
func TestDeclareDeadAsksOnATerminal(t *testing.T) {
	for _, c := range []struct {
		types string
		flags []string
		asked int32
		acted int32
		code  int
	}{
		{"y\n", nil, 1, 1, 0},
		{"YES\n", nil, 1, 1, 0},
		{"\n", nil, 1, 0, 1},
		{"n\n", nil, 1, 0, 1},
		{"yesterday\n", nil, 1, 0, 1},
		{"\x04", nil, 1, 0, 1}, // the end of the input
		{"", []string{"--yes"}, 0, 1, 0},
		{"", []string{"-y", "--json"}, 0, 1, 0},
	} {
		d := &deaths{tasks: 2}
		f := d.daemon(t)
		screen, tty := terminal(t)
		code := make(chan int)
		go func() {
			code <- run(t.Context(), append([]string{"muster", "--socket", f.socket, "node", "declare-dead", "n1"}, c.flags...), streams{tty, io.Discard, tty})
		}()
		shown := ""
		if c.asked > 0 {
			shown, _ = bufio.NewReader(screen).ReadString(']')
			io.WriteString(screen, c.types)
		}
		if got := <-code; got != c.code || d.asked.Load() != c.asked || d.acted.Load() != c.acted {
			t.Errorf("%q %v: exit %d, asked %d and acted %d times; want %+v", c.types, c.flags, got, d.asked.Load(), d.acted.Load(), c)
		}
		if c.asked > 0 && (!strings.HasPrefix(shown, "n1 was last seen ") ||
			!strings.HasSuffix(shown, " ago. 2 tasks would be given up; tasks that still run there would run twice. Declare it dead? [y/N]")) {
			t.Errorf("it asked %q, want the last contact and the number of tasks", shown)
		}
	}
}

// terminal returns a terminal and the end at which a person types.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}
