package sandbox

import (
	"os"
	"path/filepath"
	"strings"
)

// machineID returns an id of this machine that lasts across reboots, "" if it has none.
func machineID() string { return machineIDIn("/") }

// machineIDIn is machineID below the root directory. It takes the first of these files
// that holds an id:
//
//	/sys/class/dmi/id/product_uuid      the firmware's; as a rule only uid 0 may read it
//	/etc/machine-id                     systemd's, written as a UUID: machine-id(5)
//	/proc/sys/kernel/random/boot_id     another after each reboot
//
// Labels of sessions hold what has become of it, so neither the order nor the form may change.
func machineIDIn(root string) string {
	if id := firstLine(filepath.Join(root, "sys/class/dmi/id/product_uuid")); id != "" {
		return strings.ToLower(id)
	}
	if id := firstLine(filepath.Join(root, "etc/machine-id")); len(id) == 32 {
		return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
	}
	return strings.ToLower(firstLine(filepath.Join(root, "proc/sys/kernel/random/boot_id")))
}

// firstLine returns the first line of a file, "" if it cannot be read.
func firstLine(name string) string {
	data, _ := os.ReadFile(name)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
