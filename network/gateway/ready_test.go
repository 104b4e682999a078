package gateway_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
	"github.com/sandboxbash/sandboxbash/network/gateway"
	"github.com/sandboxbash/sandboxbash/network/inject"
)

// What is not ready is not dialled, inside TLS either, and its record says why.
func TestReady(t *testing.T) {
	t.Parallel()
	session, err := authority.New("test")
	if err != nil {
		t.Fatal(err)
	}
	set, err := inject.New([]inject.Secret{{Name: "TOKEN", Placeholder: secretPlaceholder, Value: secretValue, Rules: []network.Rule{rule(t, "api.example.com")}}})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 8)
	l := &secureLab{session: x509.NewCertPool(), outside: session}
	l.session.AppendCertsFromPEM(session.PEM())
	l.lab = newLabWith(t, gateway.Options{
		Rules: policy(t, []string{"api.example.com"}), Authority: session, Secrets: set,
		Ready: func(_ context.Context, r gateway.Record) error {
			asked <- fmt.Sprintf("%s:%d", r.Host, r.Port)
			return errors.New("not yet")
		},
	})
	l.host("api.example.com", 443, server(t, func(*net.TCPConn) { t.Error("it was dialled") }))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := l.client(false).Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("a request that is not ready: %s", res.Status)
	}
	if got := <-asked; got != "api.example.com:443" {
		t.Errorf("asked for %s", got)
	}
	if record := l.recorded(func(r gateway.Record) bool { return r.Err != "" }); !strings.Contains(record.Err, "not yet") || record.Address != "" {
		t.Errorf("record %+v", record)
	}
}
