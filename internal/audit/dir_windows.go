package audit

import "os"

// checkOwner accepts every directory: its access list, which it inherits from the
// user's own directories, says who may write to it.
func checkOwner(*os.Root) error { return nil }

// syncDir does nothing: the file system's journal has the names.
func syncDir(*os.Root) error { return nil }
