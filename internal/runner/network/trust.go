//go:build linux

package network

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// rootFiles are where images have the certificates of the authorities that they trust, as package
// crypto/x509 looks for them.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
	"/etc/ssl/ca-bundle.pem",                            // OpenSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
	"/etc/ssl/cert.pem",                                 // Alpine
}

// Names of files in wire.TrustDir.
const (
	caFile     = "ca.pem"     // the session's authority
	bundleFile = "bundle.pem" // the same, behind the authorities that the image trusts
	wgetFile   = "wgetrc"
	aptFile    = "apt.conf"
	javaFile   = "java.jks" // the bundle's authorities, in Java's form
)

// Trust has the session's programs trust an authority. in is its certificate, and behind it those
// that are trusted where the image has none, as PEM. All files are written again: another process of
// the host has another authority.
func Trust(in io.Reader) error { return trustStore{wire.TrustDir, rootFiles}.write(in) }

// TrustEnv returns env with the variables that name the files to programs, except those that env has.
// Without the files it returns env.
func TrustEnv(env []string) []string { return trustStore{dir: wire.TrustDir}.environment(env) }

// trustStore is a directory that commands can read and cannot change.
type trustStore struct {
	dir   string
	roots []string // files of the image
}

func (s trustStore) write(in io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(in, wire.MaxTrust+1))
	if err != nil {
		return err
	}
	if len(data) > wire.MaxTrust {
		return fmt.Errorf("certificates of more than %d bytes", wire.MaxTrust)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != certificate {
		return errors.New("no certificate of the session's authority")
	}
	own := pem.EncodeToMemory(&pem.Block{Type: certificate, Bytes: block.Bytes})
	roots := s.imageRoots()
	if len(roots) == 0 {
		roots = certificates(rest)
	}
	if err := s.prepare(); err != nil {
		return err
	}
	bundle, all := filepath.Join(s.dir, bundleFile), append(roots, own...)
	for _, f := range []struct {
		name    string
		content []byte
	}{
		{bundleFile, all},
		{javaFile, javaStore(all)},
		{wgetFile, []byte("ca_certificate = " + bundle + "\n")},
		{aptFile, []byte("Acquire::https::CAInfo \"" + bundle + "\";\n")},
		{caFile, own}, // the last: its presence turns the variables on
	} {
		if err := s.replace(f.name, f.content); err != nil {
			return err
		}
	}
	return nil
}

const certificate = "CERTIFICATE"

// certificates returns the certificates in a file of PEM, without all that is between them.
func certificates(data []byte) []byte {
	var b bytes.Buffer
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return b.Bytes()
		}
		if block.Type == certificate {
			_ = pem.Encode(&b, &pem.Block{Type: certificate, Bytes: block.Bytes}) // without headers it cannot fail
		}
	}
}

// imageRoots returns the certificates of the first of the image's files that has one. What is not a
// plain file of root's, or too large, is passed over: a command may have put it there.
func (s trustStore) imageRoots() []byte {
	for _, name := range s.roots {
		if found := certificates(plainFile(name)); len(found) > 0 {
			return found
		}
	}
	return nil
}

// plainFile returns the content of a plain file of this process's user, or nil.
func plainFile(name string) []byte {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // does not wait for the other end of a fifo
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > wire.MaxTrust || !owned(info) {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, wire.MaxTrust))
	if err != nil {
		return nil
	}
	return data
}

func owned(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uint32(os.Geteuid())
}

// prepare makes the directory, or finds out that the one that is there is ours.
func (s trustStore) prepare() error {
	const mode = 0o755
	if err := os.Mkdir(s.dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !owned(info) {
		return fmt.Errorf("%s is not a directory of uid %d", s.dir, os.Geteuid())
	}
	return os.Chmod(s.dir, mode) // whatever the umask is
}

// replace writes a file that commands can read, in one step.
func (s trustStore) replace(name string, content []byte) error {
	const mode = 0o644
	at := filepath.Join(s.dir, name)
	next := at + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, at)
}

// javaOption names Java its store.
const javaOption = "-Djavax.net.ssl.trustStore="

// trustVariables name a file of the directory to programs, behind what comes before its path.
var trustVariables = []struct{ name, file, before string }{
	{name: "SSL_CERT_FILE", file: bundleFile},                       // OpenSSL, Go, cargo, uv
	{name: "CURL_CA_BUNDLE", file: bundleFile},                      // curl
	{name: "GIT_SSL_CAINFO", file: bundleFile},                      // git
	{name: "REQUESTS_CA_BUNDLE", file: bundleFile},                  // python's requests
	{name: "PIP_CERT", file: bundleFile},                            // pip
	{name: "NODE_EXTRA_CA_CERTS", file: caFile},                     // node, in addition to its own
	{name: "NPM_CONFIG_CAFILE", file: bundleFile},                   // npm
	{name: "CARGO_HTTP_CAINFO", file: bundleFile},                   // cargo
	{name: "AWS_CA_BUNDLE", file: bundleFile},                       // the AWS command line and libraries
	{name: "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", file: bundleFile},    // gRPC but for Go's
	{name: "NIX_SSL_CERT_FILE", file: bundleFile},                   // Nix
	{name: "WGETRC", file: wgetFile},                                // wget, instead of ~/.wgetrc
	{name: "APT_CONFIG", file: aptFile},                             // apt, before its other files
	{name: "JAVA_TOOL_OPTIONS", file: javaFile, before: javaOption}, // every JVM, which says on its standard error that it read it
}

func (s trustStore) environment(env []string) []string {
	if _, err := os.Stat(filepath.Join(s.dir, caFile)); err != nil {
		return env
	}
	given := map[string]bool{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		given[name] = true
	}
	all := slices.Clip(env)
	for _, v := range trustVariables {
		if !given[v.name] {
			all = append(all, v.name+"="+v.before+filepath.Join(s.dir, v.file))
		}
	}
	return all
}
