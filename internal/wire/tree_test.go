package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func someTree() Tree {
	t := Tree{Entries: 1, Bytes: 2, Shared: 3, Sum: Sum(sha256.Sum256(nil))}
	t.Leave("a socket \n\xff")
	for range MaxTreeNames + 5 {
		t.Change(strings.Repeat("x/", 1000))
	}
	return t
}

func TestTree(t *testing.T) {
	t.Parallel()
	want := someTree()
	if len(want.Changed) != MaxTreeNames || want.ChangedCount != MaxTreeNames+5 {
		t.Errorf("Change() kept %d names of %d; want %d", len(want.Changed), want.ChangedCount, MaxTreeNames)
	}
	got, err := ParseTree(want.Append(nil))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParseTree() = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "tree 2 1 1 1 1 1 00\n", "tree 1 1\n", "tree 1 1 1 1 1 1 zz\n", "tree 1 1 1 1 -1 1 " + strings.Repeat("0", 64) + "\n",
		"tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\nx\"a\"\n", "tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\n\n",
		"tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\n" + strings.Repeat("l\"a\"\n", MaxTreeNames+1)} {
		if _, err := ParseTree([]byte(bad)); !errors.Is(err, ErrFrame) {
			t.Errorf("ParseTree(%q) = %v; want %v", bad, err, ErrFrame)
		}
	}
}

func TestChunks(t *testing.T) {
	t.Parallel()
	var wired, got bytes.Buffer
	data := bytes.Repeat([]byte("0123456789"), maxChunk/4)
	w, report := Chunks{&wired}, someTree()
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.End(&report); err != nil {
		t.Fatal(err)
	}
	whole := wired.Bytes()
	back, err := ReadChunks(bytes.NewReader(whole), &got, int64(len(data)))
	if err != nil || !bytes.Equal(got.Bytes(), data) || !reflect.DeepEqual(back, report) {
		t.Errorf("ReadChunks() = %+v, %v, and %d bytes; want %+v and %d", back, err, got.Len(), report, len(data))
	}
	if _, err := ReadChunks(bytes.NewReader(whole), io.Discard, int64(len(data))-1); !errors.Is(err, ErrFrame) {
		t.Errorf("ReadChunks() of more than its limit = %v; want %v", err, ErrFrame)
	}
	if _, err := ReadChunks(bytes.NewReader([]byte{0xff, 0, 0, 0}), io.Discard, 1<<40); !errors.Is(err, ErrFrame) {
		t.Errorf("ReadChunks() of a large chunk = %v; want %v", err, ErrFrame)
	}
	for _, n := range []int{0, 3, 10, maxChunk + 6, len(data) + 12} {
		if _, err := ReadChunks(bytes.NewReader(whole[:n]), io.Discard, 1<<40); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("ReadChunks() of %d bytes = %v; want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
	if _, err := ReadChunks(bytes.NewReader(append(make([]byte, 4), make([]byte, 1<<20)...)), io.Discard, 1); !errors.Is(err, ErrFrame) {
		t.Errorf("ReadChunks() of a long report = %v; want %v", err, ErrFrame)
	}
}
