package core

import (
	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Upstream is the proxy that the sessions' connections leave through: the configured one, else the
// environment's. nil: none.
func (c *Connection) Upstream() (*network.Upstream, error) {
	if c.cfg.NetworkRules.Proxy != "" {
		return configuredUpstream(c.cfg.NetworkRules), nil
	}
	up, err := network.EnvironmentUpstream(c.env.Getenv)
	if err != nil {
		return nil, exit.Misuse("correct the variable, or say network.proxy: none in the configuration file", "%v", err)
	}
	return up, nil
}

// configuredUpstream is the proxy of the configuration, which has been checked. nil: none.
func configuredUpstream(n config.NetworkRules) *network.Upstream {
	if n.Proxy == "" || n.Proxy == config.NoProxy {
		return nil
	}
	up, err := network.ParseUpstream(n.Proxy)
	if err != nil {
		return nil
	}
	return up
}

// proxySecrets are the passwords in the address of a configured proxy. Those of the environment's are
// found with its other credentials.
func proxySecrets(n config.NetworkRules) (list []sink.Secret) {
	for _, password := range configuredUpstream(n).Passwords() {
		list = append(list, sink.Secret{Name: "network.proxy", Value: password})
	}
	return list
}

// networkLimits are the configured limits as a session takes them.
func networkLimits(l config.NetworkLimits) sandbox.NetworkLimits {
	limits := sandbox.NetworkLimits{
		Connections: l.Connections, Rate: l.Rate, Burst: l.Burst, Bytes: l.Bytes, Idle: l.Idle, Total: l.Total,
		Header: int(l.Header), Body: l.Body,
	}
	for _, r := range l.Rules {
		limits.Rules = append(limits.Rules, sandbox.NetworkRuleLimit(r))
	}
	return limits
}
