package api

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

func TestFilesComeFromTheNodeOfTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cat")
		amy, ben, cat := c.daemons[0], c.daemons[1], c.daemons[2]
		j := amy.put(running(amy.newJob(1), ben))
		var got string
		read := func(r io.Reader) error {
			text, err := io.ReadAll(r)
			got = string(text)
			return err
		}
		for _, d := range c.daemons {
			err := d.client.Files(t.Context(), FilesRequest{Job: j.ID, Paths: []string{"a/*", "b"}, Base: true}, read)
			if want := string(j.ID) + ".0.1 at ben [a/* b] true"; err != nil || got != want {
				t.Errorf("asked at %s: got %q, %v; want %q", d.name, got, err, want)
			}
		}
		if err := cat.client.Files(t.Context(), FilesRequest{Job: j.ID, Paths: []string{"nothing"}}, read); !errors.Is(err, ErrNotFound) {
			t.Errorf("a file that is not there: got %v, want ErrNotFound", err)
		}
		if err := cat.client.Files(t.Context(), FilesRequest{Job: j.ID, Paths: []string{"broken"}}, read); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a broken archive: got %v, want ErrUnavailable", err)
		}
		for _, path := range []string{"../x", "/etc/passwd", "", "[", "a/../../b"} {
			if err := cat.client.Files(t.Context(), FilesRequest{Job: j.ID, Paths: []string{path}}, read); !errors.Is(err, ErrBad) {
				t.Errorf("path %q: got %v, want ErrBad", path, err)
			}
		}
		j.User = "bob"
		amy.put(j)
		err := cat.client.Files(t.Context(), FilesRequest{Job: j.ID, Paths: []string{"a"}}, read)
		if !errors.Is(err, ErrDenied) {
			t.Errorf("files of another user's job: got %v, want ErrDenied", err)
		}
		status, _, _ := cat.raw(t, http.MethodGet, "/peer/v1/attempts/"+job.Attempt{Job: j.ID, N: 1}.String()+"/files?path=a", "")
		if status != http.StatusNotFound {
			t.Errorf("a client uses the route of daemons: status %d, want 404", status)
		}
	})
}
