package api

// The routes of uploads: trees of files, sent in chunks so that nothing is sent twice.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/internal/upload"
)

// maxParsing bounds the lists of files that are decoded and synced at the same time; a single user gets half of them. Each
// list may have upload.MaxTreeBytes, and needs several times that in memory.
const maxParsing = 4

// rawInput is a request whose body the handler reads itself.
type rawInput struct{ body io.Reader }

// Resolve is for huma.
func (in *rawInput) Resolve(ctx huma.Context) []error {
	in.body = ctx.BodyReader()
	return nil
}

type treeInput struct {
	rawInput

	Hash string `path:"hash" maxLength:"64"`
}

// rawOutput is an answer of bytes. Its headers make browsers save it instead of showing it.
type rawOutput struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition" doc:"attachment: a browser saves the bytes, and does not show them."`
	Sniff       string `header:"X-Content-Type-Options" doc:"nosniff: a browser takes the bytes for nothing else."`
	Body        []byte
}

func octets(b []byte) *rawOutput {
	return &rawOutput{ContentType: contentBytes, Disposition: "attachment", Sniff: "nosniff", Body: b}
}

const contentBytes = "application/octet-stream"

// bodyOf returns an operation that takes bytes.
func bodyOf(op huma.Operation, doc string) huma.Operation {
	op.RequestBody = &huma.RequestBody{Description: doc, Required: true, Content: map[string]*huma.MediaType{contentBytes: {}}}
	return op
}

// bodyBound returns the maximum size of the body of a request to a path.
func bodyBound(path string) int64 {
	switch {
	case path == pathChunks:
		return upload.MaxBatch + upload.MaxChunk + 4*upload.MaxAsk
	case isTree(path):
		return upload.MaxTreeBytes
	}
	return defaultBody
}

func isTree(path string) bool { return strings.HasPrefix(path, pathTrees) }

const (
	pathMissing    = "/v1/uploads/missing"
	pathChunks     = "/v1/uploads/chunks"
	pathTrees      = "/v1/uploads/trees/"
	pathPeerChunks = "/peer/v1/chunks"
	pathPeerTrees  = "/peer/v1/trees/"
)

// uploadRoutes serves the trees that this daemon stores.
type uploadRoutes struct {
	uploads Uploads
	parsing *slots // has a slot for each list of files that is being decoded
}

// blobError translates an error of package upload into one of this package.
func blobError(err error) error {
	for _, row := range []struct{ theirs, ours error }{
		{upload.ErrMissing, ErrNotFound}, {upload.ErrInvalid, ErrBad}, {upload.ErrTooLarge, ErrTooLarge}, {upload.ErrFull, ErrUnavailable},
	} {
		if errors.Is(err, row.theirs) {
			return fmt.Errorf("upload: %w: %w", row.ours, err)
		}
	}
	return err
}

func (in *rawInput) refs() ([]upload.Ref, error) {
	text, err := io.ReadAll(in.body)
	if err != nil {
		return nil, bad("names of chunks: %w", err)
	}
	refs, err := upload.ParseRefs(text)
	return refs, blobError(err)
}

func (u *uploadRoutes) missingChunks(ctx context.Context, in *rawInput) (*rawOutput, error) {
	refs, err := in.refs()
	if err != nil {
		return nil, err
	}
	missing, err := u.uploads.MissingOf(requesterOf(ctx).user, refs)
	if err != nil {
		return nil, blobError(err)
	}
	return octets(upload.EncodeRefs(missing)), nil
}

func (u *uploadRoutes) putChunks(ctx context.Context, in *rawInput) (*struct{}, error) {
	return nil, blobError(u.uploads.PutAll(in.body, requesterOf(ctx).user))
}

// putTree answers once all of the tree is on disk, so that a job that names the tree is durable.
func (u *uploadRoutes) putTree(ctx context.Context, in *treeInput) (*struct{}, error) {
	h, err := upload.ParseHash(in.Hash)
	if err != nil {
		return nil, bad("%w", err)
	}
	text, err := io.ReadAll(in.body) // before it takes a slot: the body may be slow
	switch {
	case err != nil:
		return nil, bad("tree: %w", err)
	case upload.Sum(text) != h:
		return nil, bad("tree %s: the body has another hash", h)
	}
	by := requesterOf(ctx).account()
	if err := u.parsing.waitBriefly(ctx, by, 1); err != nil {
		return nil, err
	}
	defer u.parsing.give(by, 1)
	_, _, err = u.uploads.PutTree(text, requesterOf(ctx).user)
	return nil, blobError(err)
}

// hasTree returns an error if this daemon does not have a job's uploaded files.
func (u *uploadRoutes) hasTree(tree string) error {
	if tree == "" {
		return nil
	}
	h, err := upload.ParseHash(tree)
	if err != nil {
		return bad("%w", err)
	}
	if _, err := u.uploads.TreeText(h); err != nil {
		return bad("tree %.16s…: this daemon does not have it; upload its files first", tree)
	}
	return nil
}

func (u *uploadRoutes) getTree(_ context.Context, in *treeInput) (*rawOutput, error) {
	h, err := upload.ParseHash(in.Hash)
	if err != nil {
		return nil, bad("%w", err)
	}
	text, err := u.uploads.TreeText(h)
	if err != nil {
		return nil, blobError(err)
	}
	return octets(text), nil
}

// getChunks sends one chunk after the other. Instead of a chunk that this daemon does not have, it sends an empty one.
func (u *uploadRoutes) getChunks(_ context.Context, in *rawInput) (*huma.StreamResponse, error) {
	refs, err := in.refs()
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		_, w := humago.Unwrap(hctx)
		origin.Attach(w.Header(), contentBytes, "chunks")
		from := u.uploads.Reader()
		defer from.Close()
		out := make([]byte, 0, answerAt+4+upload.MaxChunk)
		for _, r := range refs {
			var err error
			if out, err = appendChunk(from, out, r); err != nil {
				panic(http.ErrAbortHandler)
			}
			if len(out) < answerAt {
				continue
			}
			if _, err := w.Write(out); err != nil {
				panic(http.ErrAbortHandler)
			}
			out = out[:0]
		}
		if _, err := w.Write(out); err != nil {
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// answerAt is the number of bytes that are collected before a write. A write may have one chunk more.
const answerAt = 512 << 10

func appendChunk(from *upload.Reader, out []byte, r upload.Ref) ([]byte, error) {
	all, err := from.Append(upload.AppendHead(out, r.Size), r)
	if errors.Is(err, upload.ErrMissing) {
		return upload.AppendHead(out, 0), nil
	}
	return all, err
}
