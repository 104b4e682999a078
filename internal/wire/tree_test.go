package wire

import (
	"crypto/sha256"
	"errors"
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
	for _, bad := range []string{
		"", "tree 2 1 1 1 1 1 00\n", "tree 1 1\n", "tree 1 1 1 1 1 1 zz\n", "tree 1 1 1 1 -1 1 " + strings.Repeat("0", 64) + "\n",
		"tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\nx\"a\"\n", "tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\n\n",
		"tree 1 1 1 1 1 1 " + strings.Repeat("0", 64) + "\n" + strings.Repeat("l\"a\"\n", MaxTreeNames+1),
	} {
		if _, err := ParseTree([]byte(bad)); !errors.Is(err, ErrFrame) {
			t.Errorf("ParseTree(%q) = %v; want %v", bad, err, ErrFrame)
		}
	}
}
