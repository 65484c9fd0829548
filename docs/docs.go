// Package docs embeds the guides and the manual of this version. Package docsite shows them.
package docs

import "embed"

// Files are the guides, one in a file.
//
//go:embed *.md
var Files embed.FS
