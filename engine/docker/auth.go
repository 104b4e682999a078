package docker

import (
	"fmt"

	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker/api/types/registry"
)

// hubKey is the name of Docker Hub in the user's configuration.
const hubKey = "https://index.docker.io/v1/"

// credentials looks up what the user has for an image's registry, in the
// configuration file or with the helper named there. The result is empty, and
// the error says why, if there was an obstacle; a pull may not need any.
func (c *Client) credentials(named reference.Named) (string, error) {
	if c.configDir == "" {
		return "", nil
	}
	file, err := config.Load(c.configDir)
	if err != nil {
		return "", fmt.Errorf("read Docker's configuration: %w", err)
	}
	key := reference.Domain(named)
	if key == "docker.io" {
		key = hubKey
	}
	found, err := file.GetAuthConfig(key)
	if err != nil {
		return "", fmt.Errorf("credentials for %s: %w", key, err)
	}
	return registry.EncodeAuthConfig(registryAuth(found))
}

// allCredentials is what a build gets, which may pull from anywhere. A helper
// that fails only leaves its registries out.
func (c *Client) allCredentials() map[string]registry.AuthConfig {
	if c.configDir == "" {
		return nil
	}
	file, err := config.Load(c.configDir)
	if err != nil {
		return nil
	}
	all, _ := file.GetAllCredentials()
	out := map[string]registry.AuthConfig{}
	for key, found := range all {
		out[key] = registryAuth(found)
	}
	return out
}

func registryAuth(a types.AuthConfig) registry.AuthConfig {
	return registry.AuthConfig{
		Username: a.Username, Password: a.Password, Auth: a.Auth,
		ServerAddress: a.ServerAddress, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
	}
}
