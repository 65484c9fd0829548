package api

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

func TestUploadSendsEachChunkOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("data"), 500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	sources, err := upload.Scan(dir, []string{"."}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		h, p, err := upload.Send(t.Context(), amy.client, sources, nil)
		if err != nil || p.Sent == 0 {
			t.Fatalf("got %+v, %v, want some bytes sent", p, err)
		}
		if again, p, err := upload.Send(t.Context(), amy.client, sources, nil); err != nil || again != h || p.Sent != 0 {
			t.Errorf("a second time: got %+v, %v, want the same tree and no bytes sent", p, err)
		}
		from := Holder{HTTP: ben.server.daemons.http, Peer: amy.peer}
		tree, came, err := upload.NewFetcher(ben.uploads).Fetch(t.Context(), h, []upload.Holder{from})
		if err != nil || came != p.Sent || len(tree.Entries) != 1 {
			t.Errorf("fetched %d bytes, want %d; %v", came, p.Sent, err)
		}
		if _, _, err := upload.NewFetcher(ben.uploads).Fetch(t.Context(), upload.Sum([]byte("x")), []upload.Holder{from}); !errors.Is(err, upload.ErrMissing) {
			t.Errorf("a tree that no daemon has: got %v, want upload.ErrMissing", err)
		}
		spec := job.DefaultSpec()
		spec.Command, spec.Tree = []string{"true"}, h.String()
		j, err := amy.client.Submit(t.Context(), spec, "")
		if err != nil || j.Spec.Tree != h.String() {
			t.Errorf("submit: got %+v, %v, want the name of the tree", j.Spec, err)
		}
		if other := (requester{user: "eve"}).shown(&job.Job{User: "amy"}, Job{Spec: &spec}); other.Spec.Tree != "" {
			t.Errorf("others see the name of the tree: got %q, want an empty text", other.Spec.Tree)
		}
		amy.server.auth.httpUser = "eve"
		if _, p, err := upload.Send(t.Context(), amy.client, sources, nil); err != nil || p.Sent == 0 {
			t.Errorf("another user uploads the same: got %+v, %v, want that all is sent, so that nobody learns of others' files", p, err)
		}
		if _, p, err := upload.Send(t.Context(), amy.client, sources, nil); err != nil || p.Sent != 0 {
			t.Errorf("that user again: got %+v, %v, want that nothing is sent", p, err)
		}
		amy.server.auth.httpUser = "amy"
		spec.Tree = upload.Sum([]byte("x")).String()
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrBad) {
			t.Errorf("a tree that was not uploaded: got %v, want ErrBad", err)
		}
		spec.Tree, spec.Upload = "", []string{"."}
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrBad) {
			t.Errorf("paths of the client's disk: got %v, want ErrBad", err)
		}
		spec.Upload, spec.Download = nil, []string{"["}
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrBad) {
			t.Errorf("an invalid glob: got %v, want ErrBad", err)
		}
	})
}

func TestUploadRefusesMalformedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		tree := `{"entries":[{"path":"../x","kind":"dir"}]}`
		for _, c := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", pathMissing, "short", http.StatusUnprocessableEntity},
			{"POST", pathChunks, "\xff\xff\xff\xff", http.StatusUnprocessableEntity},
			{"POST", pathChunks, "\x00\x00\x00\x05ab", http.StatusUnprocessableEntity},
			{"POST", pathChunks, "\x00\x00\x00\x00", http.StatusUnprocessableEntity},
			{"PUT", pathTrees + "nonsense", "{}", http.StatusUnprocessableEntity},
			{"PUT", pathTrees + upload.Sum([]byte("other")).String(), "{}", http.StatusUnprocessableEntity},
			{"PUT", pathTrees + upload.Sum([]byte(tree)).String(), tree, http.StatusUnprocessableEntity},
			{"GET", pathPeerTrees + upload.Sum(nil).String(), "", http.StatusNotFound},
			{"POST", pathPeerChunks, "", http.StatusNotFound},
		} {
			if status, _, body := amy.raw(t, c.method, c.path, c.body); status != c.status {
				t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, status, body, c.status)
			}
		}
	})
}
