package daemon

// Paths that users name are opened by package worker/userfile alone.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// handlesUserPaths are the packages through which the paths go that users name.
var handlesUserPaths = regexp.MustCompile(`^(worker/(runner(/.*)?|files|output|supervisor)|internal/upload|api)$`)

// opens are the functions that follow a path.
var opens = regexp.MustCompile(`^(os|unix|syscall)\.(Open|OpenFile|OpenRoot|OpenInRoot|DirFS|Create|CreateTemp|ReadFile|WriteFile|ReadDir|Stat|Lstat|Fstatat|Statx|Statfs|Truncate|Readlink|Readlinkat|Chdir|Access|Faccessat2?|Openat2?|OpenTree|Mount|Chmod|Chown|Lchown)$`)

// ownPaths are the files of these packages that follow paths, with the number of calls and whose paths they are. Such a
// path must be one that no user can name or change. For all others there is userfile.As.
var ownPaths = map[string]struct {
	calls int
	whose string
}{
	"api/certificate.go":                  {1, "the operator's: the certificate of HTTP"},
	"api/secretfiles.go":                  {2, "the operator's: files of tokens"},
	"api/server.go":                       {2, "the operator's: the socket"},
	"internal/upload/chunk.go":            {1, "of a client: what it uploads"},
	"internal/upload/destination.go":      {6, "of a client, which runs as its user: where cp writes"},
	"internal/upload/pack.go":             {2, "the store's own"},
	"internal/upload/reader.go":           {1, "the store's own"},
	"internal/upload/scan.go":             {4, "of a client: what it uploads"},
	"internal/upload/store.go":            {4, "the store's own"},
	"internal/upload/trees.go":            {5, "the store's own"},
	"internal/upload/unpack.go":           {2, "in a directory of root, which becomes the user's afterwards; nothing outside of it"},
	"worker/files/driver.go":              {2, "the daemon's own"},
	"worker/files/keep.go":                {5, "the daemon's own, and the scratch directory itself"},
	"worker/files/record.go":              {2, "the daemon's own"},
	"worker/files/spread.go":              {1, "the daemon's own"},
	"worker/files/unpack.go":              {1, "the daemon's own"},
	"worker/output/output.go":             {1, "logs in the task's directory, which is root's"},
	"worker/output/reader.go":             {3, "logs in the task's directory, which is root's"},
	"worker/output/writer.go":             {2, "logs in the task's directory, which is root's"},
	"worker/runner/docker/notes.go":       {3, "the runner's own"},
	"worker/runner/docker/oom.go":         {1, "the kernel's log"},
	"worker/runner/docker/pin.go":         {3, "in the runner's own directory; the source is open already"},
	"worker/runner/docker/process.go":     {6, "processes in /proc, by their numbers"},
	"worker/runner/docker/spec.go":        {1, "the name of an open file"},
	"worker/runner/guard/table.go":        {2, "the runners' own, in /proc"},
	"worker/runner/journal.go":            {1, "the runner's own"},
	"worker/runner/lockkeeper.go":         {2, "the runner's own"},
	"worker/runner/logfile.go":            {2, "the runner's own"},
	"worker/runner/pidspace/namespace.go": {3, "namespaces in /proc, and the root directory"},
	"worker/runner/pidspace/pids.go":      {1, "the kernel's"},
	"worker/runner/private/mount.go":      {8, "names directly in /tmp, without links, which are mounted for the user and not read; and the runner's own"},
	"worker/runner/private/private.go":    {2, "/tmp, /dev/shm and the data directory"},
	"worker/runner/proc/kernel.go":        {1, "the kernel's"},
	"worker/runner/proc/proc.go":          {1, "processes in /proc, by their numbers"},
	"worker/runner/protocol/again.go":     {3, "the runners' own"},
	"worker/runner/protocol/dir.go":       {5, "the runners' own"},
	"worker/runner/protocol/logs.go":      {2, "the runners' own"},
	"worker/runner/protocol/record.go":    {2, "the runners' own"},
	"worker/runner/protocol/socket.go":    {2, "the runners' own"},
	"worker/runner/protocol/locks.go":     {2, "the runners' own"},
	"worker/runner/room.go":               {3, "the runner's own"},
	"worker/runner/scratch/clear.go":      {2, "in a scratch directory, one name after the other, without links"},
	"worker/runner/scratch/held.go":       {3, "processes in /proc, by their numbers, and what they hold open; no file system is asked"},
	"worker/runner/scratch/kept.go":       {2, "the daemon's own, and the directories of tasks"},
	"worker/runner/scratch/meter.go":      {1, "the file system of the scratch directories"},
	"worker/runner/scratch/size.go":       {2, "in a scratch directory, one name after the other, without links"},
	"worker/runner/scratch/remove.go":     {4, "in a scratch directory, one name after the other, without links"},
	"worker/runner/spawn/become.go":       {4, "programs that were opened, looked at with the user's rights: only root can change what trusted accepts"},
	"worker/runner/spawn/cause.go":        {1, "the root directory"},
	"worker/runner/spawn/hostfile.go":     {2, "in directories of root"},
	"worker/runner/spawn/inherited.go":    {1, "this process's own descriptors"},
	"worker/runner/spawn/input.go":        {2, "new terminals"},
	"worker/runner/spawn/lookup.go":       {1, "the runner's own files, which it gives to the user"},
	"worker/runner/spawn/oomscore.go":     {1, "this process in /proc"},
	"worker/runner/spawn/spares.go":       {1, "scratch directories, whose paths no user can change"},
	"worker/runner/spawn/spawner.go":      {2, "the runner's own"},
	"worker/runner/spawn/start.go":        {2, "in the task's directory, which is root's"},
	"worker/runner/spawn/thread.go":       {1, "the root directory"},
	"worker/runner/spawn/tmp.go":          {2, "the runner's own"},
	"worker/supervisor/exec.go":           {1, "new terminals"},
	"worker/supervisor/driver.go":         {1, "the runners' own"},
	"worker/supervisor/hostmounts.go":     {3, "mount namespaces in /proc"},
	"worker/supervisor/orphans.go":        {1, "the runners' own"},
	"worker/supervisor/spares.go":         {2, "the daemon's own"},
	"worker/supervisor/supervise.go":      {1, "the runners' own"},
	"worker/supervisor/sweep.go":          {3, "the daemon's own"},
	"worker/supervisor/whose.go":          {1, "processes in /proc, by their numbers"},
}

func TestUserPathsAreOpenedInOnePlace(t *testing.T) {
	found := map[string]int{}
	for dir, files := range sources(t) {
		if !handlesUserPaths.MatchString(dir) {
			continue
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if in, ok := call.X.(*ast.Ident); ok && opens.MatchString(in.Name+"."+call.Sel.Name) {
					found[dir+"/"+file]++
				}
				return true
			})
		}
	}
	for file, calls := range found {
		if own := ownPaths[file]; own.calls != calls {
			t.Errorf("%s follows paths in %d places, and the table has %d: open what a user names with userfile.As, or say here whose paths they are", file, calls, own.calls)
		}
	}
	for file, own := range ownPaths {
		if found[file] == 0 || strings.TrimSpace(own.whose) == "" {
			t.Errorf("%s: remove it from the table, or say whose paths it follows", file)
		}
	}
}
