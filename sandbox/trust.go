package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
)

// intercepts reports whether requests of the session are read inside TLS, so that its programs must
// trust an authority of its own.
func (s *Spec) intercepts() bool {
	return len(s.Secrets) > 0 || slices.ContainsFunc(s.Allow, network.Rule.Intercepts) || slices.ContainsFunc(s.Deny, network.Rule.DenyIntercepts)
}

// trust has the session's programs trust an authority. All files of one before it are replaced.
func (s *Session) trust(ctx context.Context, a *authority.Authority) error {
	args := append([]string{engine.RunnerPath}, wire.VerbTrust.Command()...)
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: args, User: "0:0"})
	if err != nil {
		return fmt.Errorf("the session's authority: %w", err)
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	if _, err = stream.Write(slices.Concat(a.PEM(), hostRoots())); err == nil {
		err = stream.CloseWrite()
	}
	if err == nil {
		_, err = io.Copy(io.Discard, stream) // until it has ended
	}
	if err != nil {
		return fmt.Errorf("the session's authority: %w", err)
	}
	code, err := stream.ExitCode(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, bytes.TrimSpace([]byte(stream.Stderr())))
	}
	if err != nil {
		return fmt.Errorf("the session's authority: %w", err)
	}
	return nil
}

// hostRoots returns the authorities that this machine trusts, for images that bring none. On systems that
// keep them elsewhere than in a file it returns none.
var hostRoots = sync.OnceValue(func() []byte {
	for _, name := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		const own = 64 << 10 // left for the session's authority
		if data, err := os.ReadFile(name); err == nil && len(data) > 0 && len(data) < wire.MaxTrust-own {
			return data
		}
	}
	return nil
})
