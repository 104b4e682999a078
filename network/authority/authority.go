// Package authority makes the certificates of one session's intercepted connections. Only that
// session trusts its Authority: its key is in the memory of the process that carries the
// session's connections, is never stored, and ends with it.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"sync"
	"time"
)

const (
	// validity is that of an Authority, whose real end is that of the process that has its key: longer than
	// any session. Programs read the authorities that they trust when they start, so one that ended
	// within a session's life would break those that run, whatever was written into files meanwhile.
	validity     = 10 * 365 * 24 * time.Hour
	leafValidity = 24 * time.Hour // of a certificate; at half of it the next one is made
	backdated    = time.Hour      // for clocks of engines that are behind this machine's
	maxLeaves    = 1000           // that are kept; beyond it the one that ends first is forgotten
)

// Authority signs certificates for names. Its methods may be called concurrently.
type Authority struct {
	root *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	leaf *ecdsa.PrivateKey // of all certificates: one process has them all

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // guarded by mu
}

// New makes an Authority for a session, which its certificate names. It may sign for names and
// addresses, but not for other authorities.
func New(session string) (*Authority, error) { return newAt(session, time.Now()) }

func newAt(session string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the session's authority: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the session's certificates: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{Organization: []string{"sandboxbash"}, CommonName: fmt.Sprintf("sandboxbash session %.40s", session)},
		NotBefore:    now.Add(-backdated), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the session's authority: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the session's authority: %w", err)
	}
	return &Authority{
		root: root, key: key, leaf: leaf,
		pem:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		leaves: map[string]*tls.Certificate{},
	}, nil
}

// serial returns a number of 127 random bits: positive, and within the 20 bytes of RFC 5280.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// PEM returns the authority's certificate, without its key. The caller must not change it.
func (a *Authority) PEM() []byte { return a.pem }

// Certificate returns a certificate for a name or an address in the spelling of network.Canonical. The
// caller must not change it.
func (a *Authority) Certificate(name string) (*tls.Certificate, error) {
	return a.certificateAt(name, time.Now())
}

func (a *Authority) certificateAt(name string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil && now.Before(c.Leaf.NotAfter.Add(-leafValidity/2)) {
		return c, nil
	}
	c, err := a.sign(name, now)
	if err != nil {
		return nil, err
	}
	if a.leaves[name] == nil && len(a.leaves) >= maxLeaves {
		a.forget()
	}
	a.leaves[name] = c
	return c, nil
}

// sign makes a certificate, which ends no later than the authority's.
func (a *Authority) sign(name string, now time.Time) (*tls.Certificate, error) {
	end := now.Add(leafValidity)
	if end.After(a.root.NotAfter) {
		end = a.root.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{Organization: []string{"sandboxbash"}},
		NotBefore:    now.Add(-backdated), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: parsed}, nil
}

// forget forgets the certificate that ends first. It needs mu.
func (a *Authority) forget() {
	first := ""
	for name, c := range a.leaves {
		if first == "" || c.Leaf.NotAfter.Before(a.leaves[first].Leaf.NotAfter) {
			first = name
		}
	}
	delete(a.leaves, first)
}
