package runner

import (
	"reflect"
	"testing"
)

func TestFlagsAreParsedAgain(t *testing.T) {
	t.Parallel()
	for _, want := range []Config{
		{AllowRoot: true, Scope: true, NoGroups: true, Ulimits: []string{"memlock=unlimited", "nofile=1024:4096"}},
		{Ulimits: []string{}},
		DefaultConfig(),
	} {
		want.Dir, want.Generation, want.Idle, want.Answer = "/some where", 7, DefaultConfig().Idle, DefaultConfig().Answer
		got, err := Parse(append(want.Flags(), "--dir", want.Dir, "--generation", "7"))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %+v, %v; want %+v", want.Flags(), got, err, want)
		}
	}
	for _, bad := range [][]string{{"--generation", "x"}, {"--unknown"}, {"--dir", "x", "word"}} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
