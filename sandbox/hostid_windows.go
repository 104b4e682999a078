package sandbox

import (
	"strings"

	"golang.org/x/sys/windows/registry"
)

// machineID returns the id that Windows has given this machine at its installation, "" if it
// is not known. Labels of sessions hold what has become of it, so its form may not change.
func machineID() string {
	// A 32-bit program has a view of its own of the registry, which lacks the id.
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Cryptography`, registry.READ|registry.WOW64_64KEY)
	if err != nil {
		return ""
	}
	defer key.Close() //nolint:errcheck // it was read only
	id, _, err := key.GetStringValue("MachineGuid")
	if err != nil || len(id) != len("00000000-0000-0000-0000-000000000000") {
		return ""
	}
	return strings.ToLower(id)
}
