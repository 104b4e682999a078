//go:build linux

package network

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the format has no other digest
	"encoding/binary"
	"fmt"
	"testing"
)

// readJavaStore reads a Java KeyStore of certificates as Java does. `make clients` has Java itself read one.
func readJavaStore(data []byte) (aliases, certificates []string, err error) {
	const digestLen = sha1.Size
	if len(data) < digestLen {
		return nil, nil, fmt.Errorf("%d bytes", len(data))
	}
	body, digest := data[:len(data)-digestLen], data[len(data)-digestLen:]
	keyed := append([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00tMighty Aphrodite"), body...)
	if sum := sha1.Sum(keyed); !bytes.Equal(sum[:], digest) { //nolint:gosec // as above
		return nil, nil, fmt.Errorf("the digest is %x; want %x", digest, sum)
	}
	r := bytes.NewReader(body)
	number := func(n int) (v uint64) {
		b := make([]byte, 8)
		if _, e := r.Read(b[8-n:]); e != nil && err == nil {
			err = e
		}
		return binary.BigEndian.Uint64(b)
	}
	text := func(n uint64) string {
		b := make([]byte, min(n, uint64(r.Len())))
		_, _ = r.Read(b) // what is missing shows in the texts
		return string(b)
	}
	if magic, version := number(4), number(4); magic != 0xfeedfeed || version != 2 {
		return nil, nil, fmt.Errorf("magic %x, version %d", magic, version)
	}
	for range number(4) {
		if tag := number(4); tag != 2 {
			return nil, nil, fmt.Errorf("tag %d", tag)
		}
		aliases = append(aliases, text(number(2)))
		number(8)
		if kind := text(number(2)); kind != "X.509" {
			return nil, nil, fmt.Errorf("a certificate of type %q", kind)
		}
		certificates = append(certificates, text(number(4)))
	}
	if r.Len() > 0 {
		return nil, nil, fmt.Errorf("%d bytes behind the entries", r.Len())
	}
	return aliases, certificates, err
}

func TestJavaStore(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		in   []string
	}{
		{"none", nil},
		{"one", []string{"own"}},
		{"several", []string{"one", "two", string(bytes.Repeat([]byte("x"), 1<<17))}},
	} {
		var in string
		for _, text := range row.in {
			in += certificateOf(text)
		}
		aliases, got, err := readJavaStore(javaStore([]byte(in)))
		if err != nil || len(got) != len(row.in) {
			t.Errorf("%s: javaStore() holds %d certificates, %v; want %d", row.name, len(got), err, len(row.in))
			continue
		}
		seen := map[string]bool{}
		for i, want := range row.in {
			if got[i] != want || seen[aliases[i]] {
				t.Errorf("%s: certificate %d is %.20q as %q; want %.20q under a name of its own", row.name, i, got[i], aliases[i], want)
			}
			seen[aliases[i]] = true
		}
	}
}
