package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// ServerMark is a mark that servers have in common whose sessions are alike.
func ServerMark(s sandbox.Spec, contract string) string {
	names := make([]string, 0, len(s.Secrets))
	for _, secret := range s.Secrets {
		names = append(names, secret.Name)
	}
	text, _ := json.Marshal([]any{ // it can
		contract, s.Image, s.Profile, s.Workspace, s.User, s.UserName, s.Network, network.Texts(s.Allow), network.Texts(s.Deny), names,
		s.Limits, s.Runtime, s.Env, s.Mounts, s.HomeInside, s.ImageEnv,
	})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// ExpectedInfo describes the sessions of a spec before there is one.
func ExpectedInfo(s sandbox.Spec) sandbox.Info {
	if full, err := s.Normalize(); err == nil {
		s = full
	}
	info := sandbox.Info{
		Image: cmp.Or(s.Image, images.DefaultRef), Profile: s.Profile, Network: s.Network, Limits: s.Limits, Workspace: s.Workspace, Mounts: s.Mounts,
	}
	if s.User != nil {
		info.User = *s.User
	}
	if len(s.Allow) > 0 {
		info.Rules = &sandbox.NetworkRules{Allow: network.Texts(s.Allow), Deny: network.Texts(s.Deny)}
	}
	return info
}
