// Package ui is the dashboard: the files that a browser loads, embedded in the program. The files hold no data of a cluster
// and no secrets, so anybody may load them. They request the data that they show from the API, with the secret of the door
// or the token of the daemon.
//
// The page is index.html, which is served at each address of Pages. The addresses of all other files contain a hash of all
// files. So browsers can keep the files for good, and never mix files of two versions. index.html has "-" in place of the
// hash: /ui/-/app.js. Modules import each other by relative addresses.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed files
var files embed.FS

// Pages are the first parts of the paths at which the page is served; "" is the path /. The page itself interprets the rest
// of a path.
var Pages = []string{"", "gpus", "jobs", "members", "nodes", "submit", "topology", "users"}

const (
	prefix  = "/ui/"
	anyHash = prefix + "-/"

	// policy lets the page load files only from its own origin, run only scripts among these, and send no forms.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

	forGood = "public, max-age=31536000, immutable"
	ask     = "no-cache" // browsers may keep the file, but must check each time whether it has changed
)

// kinds has the content types by file extension.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

// file is one file as it is served.
type file struct {
	kind, cache, policy, tag string
	plain, packed            []byte // packed with gzip; nil if that does not help
}

// site returns all files by their addresses. The page has the address "/".
var site = sync.OnceValue(func() map[string]file {
	all, err := load(files)
	if err != nil {
		panic(err) // the embedded files are part of the program, and a test loads them
	}
	return all
})

// load reads the files of the site, which are in the directory files.
func load(from fs.FS) (map[string]file, error) {
	texts, sum := map[string][]byte{}, sha256.New()
	err := fs.WalkDir(from, "files", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		name = strings.TrimPrefix(name, "files/")
		texts[name] = text
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ui: %w", err)
	}
	const few = 16 // digits of the hash; enough to tell versions apart
	base := prefix + hex.EncodeToString(sum.Sum(nil))[:few] + "/"
	all := map[string]file{}
	for name, text := range texts {
		address, f := base+name, file{cache: forGood}
		if name == "index.html" {
			address, f.cache, f.policy = "/", ask, policy
			text = bytes.ReplaceAll(text, []byte(anyHash), []byte(base))
		}
		if f.kind = kinds[path.Ext(name)]; f.kind == "" {
			return nil, fmt.Errorf("ui: file %s: no type is known for it", name)
		}
		if err := f.fill(text); err != nil {
			return nil, fmt.Errorf("ui: file %s: %w", name, err)
		}
		all[address] = f
	}
	if _, ok := all["/"]; !ok {
		return nil, fmt.Errorf("ui: there is no index.html")
	}
	return all, nil
}

func (f *file) fill(text []byte) error {
	f.plain = text
	sum := sha256.Sum256(text)
	f.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && b.Len() < len(text) {
		f.packed = b.Bytes()
	}
	return err
}

// Serves reports whether Serve handles an address, for GET and HEAD.
func Serves(address string) bool { return IsPage(address) || strings.HasPrefix(address, prefix) }

// IsPage reports whether the page itself is served at an address.
func IsPage(address string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(address, "/"), "/")
	return strings.HasPrefix(address, "/") && slices.Contains(Pages, first) && (first != "" || address == "/")
}

// others are the first parts of addresses that are not for people. Requests for missing addresses there get a problem
// document.
var others = []string{"door", "docs", "health", "metrics", "openapi.json", "openapi.yaml", "openapi-3.0.json", "openapi-3.0.yaml", "peer", "ready", "ui", "v1"}

// IsMissing reports whether a browser requests a page at an address that does not exist.
func IsMissing(r *http.Request) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && first != "" && !slices.Contains(Pages, first) && !slices.Contains(others, first) && wantsPage(r)
}

// wantsPage reports whether the Accept header of a request has HTML.
func wantsPage(r *http.Request) bool {
	for kind := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, _, _ = strings.Cut(kind, ";"); strings.EqualFold(strings.TrimSpace(kind), "text/html") {
			return true
		}
	}
	return false
}

// ServeMissing answers a request for a page that does not exist with the dashboard's page and status 404. The dashboard
// then says that there is no such page.
func ServeMissing(w http.ResponseWriter, r *http.Request) {
	page := site()["/"]
	h := w.Header()
	h.Set("Content-Type", page.kind)
	h.Set("Cache-Control", ask)
	h.Set("Content-Security-Policy", page.policy)
	h.Set("Content-Length", strconv.Itoa(len(page.plain)))
	w.WriteHeader(http.StatusNotFound)
	if r.Method != http.MethodHead {
		_, _ = w.Write(page.plain) // if the reader is gone the error does not matter
	}
}

// Serve answers a request for an address of the dashboard.
func Serve(w http.ResponseWriter, r *http.Request) {
	address := r.URL.Path
	if IsPage(address) {
		address = "/"
	}
	f, ok := site()[address]
	if !ok {
		w.Header().Set("Content-Type", kinds[".txt"])
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, "There is no such file in this version. Load the page again.")
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", f.cache)
	h.Set("Etag", f.tag)
	if f.policy != "" {
		h.Set("Content-Security-Policy", f.policy)
	}
	body := f.plain
	if f.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = f.packed
		}
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // if the reader is gone the error does not matter
	}
}
