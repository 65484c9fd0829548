package osuser

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/exetest"
)

// testDirectory makes a directory from files and from a shell script in place of getent, which writes each of its
// arguments to a file. It returns a function that reads this file.
func testDirectory(t *testing.T, files map[string]string, getent string) (d *directory, asked func() string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := exetest.Write(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range files {
		put(name, text, 0o600)
	}
	record := filepath.Join(dir, "asked")
	d = newDirectory(dir, put("getent", "#!/bin/sh\necho \"$@\" >> "+record+"\n"+getent, 0o700))
	return d, func() string {
		text, err := os.ReadFile(record)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
}

const (
	passwd = "root:x:0:0::/root:/bin/sh\n\n:x:5::\nbad\ndaemon:x:1:1::/:/bin/false\nx:y:-1:\nada:x:1000:1000::/home/ada:/bin/sh\nada:x:0:0::/:\n+nis::::::\n#cat:x:3:3::/:\nall:x:4294967295:1::/:\n"
	group  = "root:x:0:\nada:x:1000:\nwheel:x:10:root,ada\nbad:x:-3:ada\nadas:x:11:adam\ngpu:x:12:ada\n"
)

// Users and groups of the files are found without a call of getent.
func TestUsersOfFilesNeedNoService(t *testing.T) {
	t.Parallel()
	for _, switches := range []string{"", "hosts: dns\n", "passwd: files\ngroup: files [SUCCESS=return NOTFOUND=continue]\n"} {
		d, asked := testDirectory(t, map[string]string{"passwd": passwd, "group": group, "nsswitch.conf": switches}, "echo eve:x:2001:2001::/:/bin/sh\n")
		all, err := d.inFile()
		if err != nil || len(all) != 3 || all[0].Name != "root" || all[1] != (User{Name: "daemon", UID: 1, GID: 1, Home: "/"}) {
			t.Errorf("got %v, %v, want 3 users with their fields", all, err)
		}
		ada, err := d.Lookup("ada")
		if want := (User{Name: "ada", UID: 1000, GID: 1000, Home: "/home/ada"}); err != nil || ada != want {
			t.Errorf("ada: got %+v, %v, want %+v", ada, err, want)
		}
		if groups, err := d.Groups(ada); err != nil || !slices.Equal(groups, []uint32{1000, 10, 12}) {
			t.Errorf("groups of ada: got %v, %v, want 1000, 10 and 12", groups, err)
		}
		if _, err := d.Lookup("eve"); !unknown(err) {
			t.Errorf("eve: got %v, want an unknown user", err)
		}
		if a := asked(); a != "" {
			t.Errorf("with %q getent was called: got %s, want an empty text", switches, a)
		}
	}
}

func unknown(err error) bool {
	_, is := errors.AsType[user.UnknownUserError](err)
	return is
}

// A user of a directory service has an account, the groups of the service and those of the file.
func TestUserOfAServiceHasItsGroups(t *testing.T) {
	t.Parallel()
	d, asked := testDirectory(t, map[string]string{
		"passwd": passwd, "group": group + "render:x:13:eve\n", "nsswitch.conf": "# here\npasswd:  files sss # and there\ngroup:\tfiles\tsss\n",
	}, `case "$*" in
"passwd eve") echo "eve:*:200001:200001:Eve:/home/eve:/bin/bash" ;;
"initgroups eve") echo "eve                   200007 13" ;;
"initgroups ada") echo "ada                   10 200007" ;;
*) exit 2 ;;
esac
`)
	for range 3 { // asked for once
		eve, err := d.Lookup("eve")
		if want := (User{Name: "eve", UID: 200001, GID: 200001, Home: "/home/eve"}); err != nil || eve != want {
			t.Fatalf("eve: got %+v, %v, want %+v", eve, err, want)
		}
		if groups, err := d.Groups(eve); err != nil || !slices.Equal(groups, []uint32{200001, 13, 200007}) {
			t.Errorf("groups of eve: got %v, %v, want 200001, 13 and 200007", groups, err)
		}
		ada, err := d.Lookup("ada")
		if err != nil {
			t.Fatal(err)
		}
		if groups, err := d.Groups(ada); err != nil || !slices.Equal(groups, []uint32{1000, 10, 12, 200007}) {
			t.Errorf("groups of ada: got %v, %v, want 1000, 10, 12 and 200007", groups, err)
		}
	}
	if want := "passwd eve\ninitgroups eve\ninitgroups ada\n"; asked() != want {
		t.Errorf("calls of getent: got\n%swant\n%s", asked(), want)
	}
	for _, name := range []string{"bob", "", "-s", "a:b", "a\nb", "2001"} {
		if _, err := d.Lookup(name); !unknown(err) {
			t.Errorf("%q: got %v, want an unknown user", name, err)
		}
	}
	if strings.Contains(asked(), "-s") || strings.Contains(asked(), "a:b") {
		t.Errorf("getent was called with an invalid name:\n%s\nwant a text without %q and a text without %q", asked(), "-s", "a:b")
	}
}

// Answers of a service are checked, and a missing answer does not mean that there is no such user.
func TestAnswersOfAServiceAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, getent, passwd string
		absent               bool
		want                 string
	}{
		{"nobody", "exit 2", "files sss", true, "unknown user"},
		{"another name", "echo Eve:x:2001:2001::/:/bin/sh", "files sss", true, "unknown user"},
		{"root", "echo eve:x:0:0::/:/bin/sh", "files sss", true, "uid 0, and uids below 500"},
		{"system", "echo eve:x:499:0::/:/bin/sh", "files sss", true, "uid 499"},
		{"first", "echo eve:x:500:0::/:/bin/sh", "files sss", false, ""},
		{"service", "echo eve:x:61184:61184::/:/bin/sh", "files systemd", true, "of a service of systemd"},
		{"large uid", "echo eve:x:61184:61184::/:/bin/sh", "files sss", false, ""},
		{"no uid", "echo eve:x::0::/:/bin/sh", "files sss", false, "answers"},
		{"no group", "echo eve:x:2001:-1::/:/bin/sh", "files sss", false, "answers"},
		{"words", "echo hello", "files sss", false, "answers"},
		{"not a line", "printf eve:x:2001:2001::/:/bin/sh", "files sss", false, "incomplete"},
		{"endless", "exec cat /dev/zero", "files sss", false, "not answer"},
		{"silent", "exec sleep 60", "files sss", false, "not answer"},
		{"complains", "printf 'no\\033 database\\n' >&2; exit 1", "files sss", false, "getent passwd: no  database"},
		{"relative home", "echo eve:x:2001:2001::home:/bin/sh", "ldap", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, _ := testDirectory(t, map[string]string{"passwd": passwd, "nsswitch.conf": "passwd: " + c.passwd, "login.defs": "# UID_MIN 5\nUID_MIN\t\t 500\nUID_MIN 7\n"}, c.getent)
			if strings.Contains(c.want, "not answer") {
				d.patience = 100 * time.Millisecond
			}
			began := time.Now()
			u, err := d.Lookup("eve")
			switch {
			case c.want == "" && (err != nil || u.Name != "eve" || u.Home != "" && u.Home != "/"):
				t.Errorf("got %+v, %v, want eve", u, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || unknown(err) != c.absent):
				t.Errorf("got %+v, %v, want %q", u, err, c.want)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s, want at most 30 s", took)
			}
		})
	}
}

// The name of a uid is that of the files, or of a service that answers in time. No service can name a user of the
// files.
func TestNameOfAUIDPrefersTheFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, getent, passwd string
		uid                  uint32
		is                   string
		absent               bool
		want                 string // a part of the error
	}{
		{"in the file", "exit 2", "files sss", 1000, "ada", false, ""},
		{"of a service", "[ $2 = 2001 ] && echo eve:x:2001:2001::/:/bin/sh", "files sss", 2001, "eve", false, ""},
		{"nobody", "exit 2", "files sss", 2001, "", true, "unknown userid 2001"},
		{"no service", "echo eve:x:2001:2001::/:/bin/sh", "files", 2001, "", true, "unknown userid 2001"},
		{"another uid", "echo eve:x:2002:2001::/:/bin/sh", "files sss", 2001, "", true, "unknown userid 2001"},
		{"a name of the file", "echo root:x:2001:2001::/:/bin/sh", "files sss", 2001, "", true, "another account of this host"},
		{"words", "echo hello", "files sss", 2001, "", false, "answers"},
		{"silent", "exec sleep 60", "files sss", 2001, "", false, "does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, _ := testDirectory(t, map[string]string{"passwd": passwd, "nsswitch.conf": "passwd: " + c.passwd}, c.getent)
			if c.want == "does not answer" {
				d.patience = 100 * time.Millisecond
			}
			name, err := d.Name(c.uid)
			_, absent := errors.AsType[user.UnknownUserIdError](err)
			if name != c.is || absent != c.absent || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v; want %q, %q", name, err, c.is, c.want)
			}
		})
	}
}

// Without getent, or without its groups, only the files count.
func TestFailedServicesLeaveTheFiles(t *testing.T) {
	t.Parallel()
	d, asked := testDirectory(t, map[string]string{"passwd": passwd, "group": group, "nsswitch.conf": "passwd: files sss\ninitgroups: sss\ngroup: files\n"}, "echo sssd is down >&2; exit 1\n")
	ada, err := d.Lookup("ada")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if groups, err := d.Groups(ada); err != nil || !slices.Equal(groups, []uint32{1000, 10, 12}) {
			t.Errorf("groups of ada: got %v, %v, want 1000, 10 and 12", groups, err)
		}
		if groups, err := d.Groups(User{Name: "eve", UID: 2001, GID: 2001}); err == nil || unknown(err) {
			t.Errorf("groups of eve: got %v, %v, want an error other than an unknown user", groups, err)
		}
	}
	if n := strings.Count(asked(), "\n"); n != 2 {
		t.Errorf("a service that is down: got %d calls, want 2", n)
	}
	d.getent = filepath.Join(t.TempDir(), "getent")
	if _, err := d.Lookup("bob"); !unknown(err) {
		t.Errorf("without getent: got %v, want an unknown user", err)
	}
}

// However many names are asked for, the number of stored answers is bounded.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	a := answers{of: map[string]answer{}}
	now := time.Now()
	for i := range 3 * maxAnswers {
		a.put(fmt.Sprint(i), answer{line: "x", until: now.Add(goodFor)})
		if len(a.of) > maxAnswers {
			t.Fatalf("got %d answers, want at most %v", len(a.of), maxAnswers)
		}
	}
	last := fmt.Sprint(3*maxAnswers - 1)
	if _, ok := a.get(last, now); !ok {
		t.Error("the newest answer is gone")
	}
	if _, ok := a.get(last, now.Add(goodFor)); ok {
		t.Error("an answer never expires")
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add("eve:x:2001:2001::/home/eve:/bin/sh")
	f.Add("eve                    10 20")
	f.Fuzz(func(t *testing.T, line string) {
		if u, ok := parseUser(line); ok && (u.Name == "" || u.UID == noID || u.GID == noID || strings.Contains(u.Name, ":")) {
			t.Errorf("%q was accepted as %+v", line, u)
		}
		groups, err := parseGroups(line, "eve")
		if err == nil && (len(groups) > maxGroups || slices.Contains(groups, noID) || !strings.HasPrefix(strings.TrimSpace(line), "eve")) {
			t.Errorf("%q was accepted with the groups %v", line, groups)
		}
	})
}

// BenchmarkLookup looks a user up as each start of a task does.
func BenchmarkLookup(b *testing.B) {
	for _, users := range []int{30, 30_000} {
		b.Run(fmt.Sprintf("of %d", users), func(b *testing.B) {
			etc := b.TempDir()
			var passwd strings.Builder
			for i := range users {
				fmt.Fprintf(&passwd, "user%d:x:%d:%d:Some Body,,,:/home/user%d:/bin/bash\n", i, 2000+i, 2000+i, i)
			}
			if err := os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			d := newDirectory(etc, "getent")
			last := fmt.Sprintf("user%d", users-1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Lookup(last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A message names a user by name, or by uid if there is no name.
func TestMessagesNameUsersByNameOrUID(t *testing.T) {
	for uid, want := range map[int]string{0: "root", 1<<31 - 7: "2147483641"} {
		if got := ForPeople(uid); got != want {
			t.Errorf("uid %d: got %q, want %q", uid, got, want)
		}
	}
}
