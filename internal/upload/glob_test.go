package upload

import (
	"errors"
	"strings"
	"testing"
)

func TestGlobsMatchPaths(t *testing.T) {
	for _, c := range []struct {
		globs, name, match string
		hidden             bool
	}{
		{"out.txt", "out.txt", "out.txt", false},
		{"out.txt", "out.txt2", "", false},
		{"out.txt", ".bashrc", "", false},
		{"out.txt", "a/out.txt", "", false},
		{"ckpt", "ckpt/.hidden/x", "ckpt", false},
		{"./ckpt/", "ckpt/x", "ckpt", false},
		{".", ".bashrc", ".", false},
		{"*", "a/b", "a", false},
		{"*", ".bashrc", "", true},
		{"*", ".ssh/authorized_keys", "", true},
		{".*", ".ssh/authorized_keys", ".ssh", false},
		{"{.b,a}*", ".bashrc", ".bashrc", false},
		{"{.c,a}*", ".bashrc", "", false},
		{"[.]bashrc", ".bashrc", "", true},
		{"?bashrc", ".bashrc", "", true},
		{`\.bashrc`, ".bashrc", ".bashrc", false},
		{"**", ".bashrc", "", true},
		{"**", "a/.b", "a", false},
		{"**/x", "x", "x", false},
		{"**/x", "a/b/x/y", "a/b/x", false},
		{"**/x", "a/.b/x", "", true},
		{"**/.b/x", "a/.b/x", "a/.b/x", false},
		{"a/**", "a", "", false},
		{"a/**", "a/b/c", "a/b", false},
		{"a/**/c", "a/c", "a/c", false},
		{"ckpt/*.pt", "ckpt/1.pt", "ckpt/1.pt", false},
		{"ckpt/*.pt", "ckpt/1.py", "", false},
		{"{a,b/{c,d}}/x", "b/d/x", "b/d/x", false},
		{"{a,b/{c,d}}/x", "b/x", "", false},
		{"a[{]b", "a{b", "a{b", false},
		{"x *", "y", "", false},
	} {
		a, err := ParseAsked(strings.Split(c.globs, " ")[:1])
		if err != nil {
			t.Fatal(err)
		}
		if match, _, hidden := a.Of(c.name); match != c.match || hidden != c.hidden {
			t.Errorf("%s, %s: got %q, %v; want %q, %v", c.globs, c.name, match, hidden, c.match, c.hidden)
		}
	}
	if _, err := ParseGlob(strings.Repeat("{a,b}", 11)); !errors.Is(err, errAlternatives) {
		t.Errorf("2,048 alternatives: got %v, want errAlternatives", err)
	}
	if _, err := ParseGlob("a["); err == nil {
		t.Error("a class without an end was accepted")
	}
}

// FuzzGlob checks that a match is the path or a directory above it, and that no wildcard matches a leading dot.
func FuzzGlob(f *testing.F) {
	f.Add("a/{b,c}/**/*.pt", "a/b/.c/x.pt")
	f.Add("**/[a-z]*", ".a/b")
	f.Fuzz(func(t *testing.T, glob, name string) {
		g, err := ParseGlob(glob)
		if err != nil || checkPath(name) != nil {
			return
		}
		match, _, _ := Asked{g}.Of(name)
		if match == "" || match == "." {
			return
		}
		if name != match && !strings.HasPrefix(name, match+"/") {
			t.Fatalf("%q matches %q of %q", glob, match, name)
		}
		if !strings.Contains(glob, ".") && (strings.HasPrefix(match, ".") || strings.Contains(match, "/.")) {
			t.Fatalf("%q matches the hidden %q", glob, match)
		}
	})
}
