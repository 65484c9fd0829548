//go:build profile

package main

import "github.com/musterhq/muster/internal/profile"

func init() { atExit = profile.Start() }
