package job

import (
	"strings"
	"testing"
)

func TestImagesAreChecked(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0f", 32)
	for ref, ok := range map[string]bool{
		"busybox": true, "busybox:1.36": true, "nvcr.io/nvidia/pytorch:24.05-py3": true, "localhost:5000/a/b_c/d--e": true,
		"a.b/c__d:T" + digest: true, "[::1]:5000/a": true, "Team.example/a": true,
		"": true, "Busybox": false, "a b": false, "a:": false, "a/": false, "/a": false, "a@sha256:12": false, "a:b:c": false, "-a": false,
		"a\n": false, "--privileged": false, strings.Repeat("a", maxImage+1): false,
	} {
		s := DefaultSpec()
		s.Command, s.Image = []string{"true"}, ref
		if err := s.Validate(); (err == nil) != ok {
			t.Errorf("image %.40q: %v, want an error exactly if it is bad", ref, err)
		}
	}
	s := DefaultSpec()
	s.Image = "busybox"
	if err := s.Validate(); err != nil {
		t.Errorf("the own command of an image: %v", err)
	}
	s.Image, s.Command, s.Mounts = "", []string{"true"}, []string{"/a:/b"}
	if err := s.Validate(); err == nil {
		t.Error("a process with mounts is valid")
	}
	s.Mounts, s.Workdir, s.Download = nil, "/srv", []string{"a"}
	if err := s.Validate(); err != nil {
		t.Errorf("download of a process with a workdir: %v", err)
	}
	if s.Image = "busybox"; s.Validate() == nil {
		t.Error("download of a container with a workdir was accepted")
	}
}

func TestMountsAreParsed(t *testing.T) {
	for text, want := range map[string]Mount{
		"/data:/in":    {Source: "/data", Target: "/in"},
		"/data:/in:ro": {Source: "/data", Target: "/in", ReadOnly: true},
		"/a b:/in:rw":  {Source: "/a b", Target: "/in"},
		"/:/host":      {Source: "/", Target: "/host"},
		"/x:/dev/shm":  {Source: "/x", Target: "/dev/shm"},
		"/x:/process":  {Source: "/x", Target: "/process"},
	} {
		if m, err := ParseMount(text); err != nil || m != want {
			t.Errorf("ParseMount(%q) = %+v, %v, want %+v", text, m, err, want)
		}
	}
	for _, text := range []string{"", "/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:z", "/a/../b:/c", "/a:/b/", "/a:/", "/a\n:/b", "//a:/b", "/a:/proc", "/a:/proc/x", "/a:/sys/x", "/a:/dev"} {
		if m, err := ParseMount(text); err == nil {
			t.Errorf("ParseMount(%q) = %+v, want an error", text, m)
		}
	}
}

func TestTwoMountsAtOnePlaceAreRefused(t *testing.T) {
	s := Spec{Image: "busybox:1", Mounts: []string{"/a:/x", "/b:/y", "/c:/x:ro"}}
	if err := checkImage(s); err == nil || !strings.Contains(err.Error(), "another mount is at /x") {
		t.Errorf(`got %v, want an error and "another mount is at /x" in it`, err)
	}
}

func TestBelowComparesDirectories(t *testing.T) {
	dirs := []string{"/data", "/srv/x/"}
	for source, want := range map[string]bool{
		"/data": true, "/data/a/b": true, "/srv/x/a": true,
		"/database": false, "/": false, "/srv": false, "/etc": false,
	} {
		if got := (Mount{Source: source}).Below(dirs); got != want {
			t.Errorf("%s below %v = %t, want %v", source, dirs, got, want)
		}
	}
	if !(Mount{Source: "/etc"}).Below([]string{"/"}) || (Mount{Source: "/etc"}).Below(nil) {
		t.Error("the root must contain every path, and an empty list none")
	}
}
