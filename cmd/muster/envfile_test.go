package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// The error of a file with variables names the file, the line and the invalid word.
func TestErrorsOfAnEnvFileNameTheLine(t *testing.T) {
	f := newFake(t, nil)
	t.Chdir(t.TempDir())
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("V" + strconv.Itoa(i) + "=\n")
		}
		return b.String()
	}
	for text, want := range map[string]string{
		"A=1\n\nexport B=2\n":                   `vars:3: "export B": leave out the word export`,
		"# x\n1X=3\n":                           `vars:2: "1X": a name is letters, digits and _, a value has no zero byte`,
		"A=1\nA B=3\n":                          `vars:2: "A B": a name is letters, digits and _`,
		"A=1\n=3\n":                             `vars:2: "=3": the name before = is missing`,
		"A=1\r\nX=\xff\n":                       `vars:2: "X": its value is not UTF-8 text`,
		"A=1\nX=a\x00b\n":                       `vars:2: "X": a name is letters, digits and _, a value has no zero byte`,
		"NOT_SET_ANYWHERE\n":                    `vars:1: "NOT_SET_ANYWHERE" is not set here; want K=V`,
		"A: 1\n":                                `vars:1: "A: 1": want K=V, or K alone to take it from here`,
		lines(job.MaxEnv + 2):                   `vars:1025: more than 1024 variables`,
		strings.Repeat("#", 2*job.MaxSpecBytes): `vars: larger than 1MiB; let the tasks read the file themselves`,
	} {
		if err := os.WriteFile("vars", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := f.muster("submit", "--env-file", "vars", "--", "true")
		if r.code != exitUsage || !strings.Contains(r.err, "muster: --env-file: "+want) {
			t.Errorf("%.40q: exit %d, %s, want %s", text, r.code, r.err, want)
		}
	}
}

// Too many variables are refused before each is added to a copy of the earlier ones.
func TestTooManyVariablesAreRefused(t *testing.T) {
	args := []string{"submit"}
	for i := range 4 * job.MaxEnv {
		args = append(args, "--env", "V"+strconv.Itoa(i)+"=")
	}
	if r := newFake(t, nil).muster(append(args, "--", "true")...); r.code != exitUsage || !strings.Contains(r.err, "--env: more than 1024 variables") {
		t.Errorf("exit %d, %s, want exit %v and stderr with %q", r.code, r.err, exitUsage, "--env: more than 1024 variables")
	}
}
