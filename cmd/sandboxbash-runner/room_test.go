//go:build linux

package main

import (
	"slices"
	"testing"
)

func TestWritableTmpfs(t *testing.T) {
	t.Parallel()
	const info = `1 0 0:1 / / ro,relatime - overlay overlay rw,lowerdir=/x
2 1 0:2 / /tmp rw,nosuid - tmpfs tmpfs rw,size=8192k
3 1 0:3 / /a\040b rw,nosuid - tmpfs tmpfs rw,size=8192k
4 1 0:4 / /data ro,nosuid - tmpfs tmpfs rw
5 1 0:5 / /data2 rw,nosuid - tmpfs tmpfs ro
6 1 0:6 / /sys/firmware rw,relatime - tmpfs tmpfs rw
7 1 0:7 / /sys/fs/cgroup rw shared:7 - tmpfs tmpfs rw
8 1 254:1 /v /workspace rw - ext4 /dev/sda rw
9 1 0:9 / /opt rw master:1 - tmpfs tmpfs rw
broken
`
	if got, want := writableTmpfs([]byte(info)), []string{"/tmp", "/a b", "/opt"}; !slices.Equal(got, want) {
		t.Errorf("writableTmpfs() = %q; want %q", got, want)
	}
}

func TestStatRoom(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc", "/sys", "/nowhere"} { // without a size, or without anything
		if n, ok := statRoom(path); ok {
			t.Errorf("statRoom(%s) = %+v; want room", path, n)
		}
	}
}
