//go:build !unix

package transfer

import "os"

const openFlags = 0

func isNotDir(error) bool { return false }

func otherDevice(error) bool { return false }

// tryLock has no lock that ends with its process: what one has left behind stays.
func tryLock(*os.File) bool { return false }

func closeLocked(f *os.File) error { return f.Close() }

// haveLocks reports whether tryLock works.
const haveLocks = false
