// Package docs embeds the guides and the manual of this version. Package api/guide shows them.
package docs

import "embed"

// Files are the guides, one in a file.
//
//go:embed *.md
var Files embed.FS
