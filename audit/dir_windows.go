package audit

import "os"

// checkOwner takes every directory: who may write to it is in its access list, which
// the user's own directories inherit.
func checkOwner(*os.Root) error { return nil }

// syncDir has nothing to do: the file system's journal has the names.
func syncDir(*os.Root) error { return nil }
