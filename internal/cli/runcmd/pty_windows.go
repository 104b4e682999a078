package runcmd

import (
	"os"
	"time"
)

// readable reports whether the command still runs. A read of a console cannot be
// called off, and takes one more key.
func readable(_ *os.File, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	default:
		return true
	}
}

// sizePause is between two looks at the size of a console, which does not report
// a change.
const sizePause = 500 * time.Millisecond

// watchSize calls changed when the terminal's size may have changed, until over.
func watchSize(over <-chan struct{}, changed func()) {
	ticker := time.NewTicker(sizePause)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
			changed()
		}
	}
}
