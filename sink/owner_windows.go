package sink

import "io/fs"

// checkPath accepts every path: access lists, which the user's directories inherit, say
// who may write to it.
func checkPath(string) error { return nil }

// ownDir accepts every directory, as checkPath does.
func ownDir(string, fs.FileInfo) error { return nil }
