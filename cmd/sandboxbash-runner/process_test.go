//go:build linux

package main

import (
	"os"
	"runtime"
	"testing"
)

// The threads are there afterwards, and stay.
func TestStartThreads(t *testing.T) {
	startThreads()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) < spareThreads {
		t.Errorf("%d threads after startThreads(); want at least %d", len(tasks), spareThreads)
	}
}

func BenchmarkStartThreads(b *testing.B) {
	for b.Loop() {
		startThreads()
		runtime.Gosched()
	}
}
