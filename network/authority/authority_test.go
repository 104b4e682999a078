package authority

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// start is a time with whole seconds, as certificates have them.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestCertificate(t *testing.T) {
	t.Parallel()
	a, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatalf("not a certificate: %q", a.PEM())
	}
	for _, row := range []struct{ name, other string }{
		{"example.com", "www.example.com"},
		{"a_b.example.com", "example.com"},
		{"xn--bcher-kva.example", "example"},
		{strings.Repeat("a.", 120) + "com", "a.com"},
		{"93.184.215.14", "93.184.215.15"},
		{"2606:2800:21f:cb07::1", "::1"},
	} {
		c, err := a.certificateAt(row.name, start)
		if err != nil {
			t.Fatal(err)
		}
		verify := func(name string, at time.Time) error {
			_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at})
			return err
		}
		if err := verify(row.name, start.Add(23*time.Hour)); err != nil {
			t.Errorf("the certificate for %s: %v", row.name, err)
		}
		if err := verify(row.name, start.Add(-59*time.Minute)); err != nil {
			t.Errorf("the certificate for %s, by a clock that is behind: %v", row.name, err)
		}
		if err := verify(row.other, start); err == nil {
			t.Errorf("the certificate for %s is one for %s", row.name, row.other)
		}
		if err := verify(row.name, start.Add(25*time.Hour)); err == nil {
			t.Errorf("the certificate for %s is valid for more than a day", row.name)
		}
	}
}

// What signs for a session signs for nothing else: another authority below it is not accepted.
func TestAuthorityIsNarrow(t *testing.T) {
	t.Parallel()
	a, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(a.PEM())
	if block == nil || len(rest) != 0 || bytes.Contains(a.PEM(), []byte("KEY")) {
		t.Fatalf("PEM() = %q; want one certificate", a.PEM())
	}
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !root.IsCA || root.MaxPathLen != 0 || !root.MaxPathLenZero || root.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("IsCA %v, MaxPathLen %d (%v), KeyUsage %b", root.IsCA, root.MaxPathLen, root.MaxPathLenZero, root.KeyUsage)
	}
	leaf, err := a.certificateAt("example.com", start)
	if err != nil {
		t.Fatal(err)
	}
	if leaf.Leaf.IsCA {
		t.Error("a certificate for a name is an authority")
	}
	other, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a.PEM(), other.PEM()) || root.SerialNumber.Cmp(other.root.SerialNumber) == 0 {
		t.Error("two authorities are the same")
	}
}

func TestCertificateIsMadeAgain(t *testing.T) {
	t.Parallel()
	a, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.certificateAt("example.com", start)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		after time.Duration
		same  bool
	}{{0, true}, {11 * time.Hour, true}, {13 * time.Hour, false}} {
		now, err := a.certificateAt("example.com", start.Add(row.after))
		if err != nil || (now == first) != row.same {
			t.Errorf("after %v it is the same certificate: %v, %v; want %v", row.after, now == first, err, row.same)
		}
	}
	last, err := a.certificateAt("example.com", start.Add(validity-time.Hour))
	if err != nil || last.Leaf.NotAfter.After(a.root.NotAfter) {
		t.Errorf("a certificate ends at %v, the authority at %v, %v", last.Leaf.NotAfter, a.root.NotAfter, err)
	}
}

// A program that has read the authority at the start of a session trusts what is signed as long as the session
// lives, and no certificate for a name is valid for more than a day.
func TestAuthorityLastsAsLongAsASession(t *testing.T) {
	t.Parallel()
	a, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	const day = 24 * time.Hour
	for _, age := range []time.Duration{0, 6*day + 23*time.Hour, 7 * day, 8 * day, 90 * day, 400 * day, 3000 * day} {
		now := start.Add(age)
		c, err := a.certificateAt("example.com", now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: roots, CurrentTime: now}); err != nil {
			t.Errorf("in a session that is %v old: %v", age, err)
		}
		if left := c.Leaf.NotAfter.Sub(now); left > day || left < day/2 {
			t.Errorf("in a session that is %v old a certificate is valid for another %v", age, left)
		}
	}
}

func TestCertificatesAreBounded(t *testing.T) {
	t.Parallel()
	a, err := newAt("5f1c", start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxLeaves + 10 {
		if _, err := a.certificateAt(fmt.Sprintf("h%d.example.com", i), start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.leaves); n != maxLeaves || a.leaves["h0.example.com"] != nil || a.leaves["h1009.example.com"] == nil {
		t.Errorf("%d certificates are kept; want %d, without the oldest", n, maxLeaves)
	}
}

func TestCertificateConcurrently(t *testing.T) {
	t.Parallel()
	a, err := New("5f1c")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 50 {
				if _, err := a.Certificate(fmt.Sprintf("h%d.example.com", (n+i)%20)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(a.leaves) != 20 {
		t.Errorf("%d certificates for 20 names", len(a.leaves))
	}
}
