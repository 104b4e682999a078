package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// Labels of sessions that earlier versions have started hold an id made from these files.
func TestMachineID(t *testing.T) {
	t.Parallel()
	const (
		product = "sys/class/dmi/id/product_uuid"
		machine = "etc/machine-id"
		boot    = "proc/sys/kernel/random/boot_id"

		productID = "4C4C4544-0042-3010-8051-B4C04F4D3632\n"
		machineID = "0123456789abcdef0123456789abcdef\n"
		bootID    = "AAAAAAAA-bbbb-cccc-dddd-eeeeeeeeeeee\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"all", map[string]string{product: productID, machine: machineID, boot: bootID}, "4c4c4544-0042-3010-8051-b4c04f4d3632"},
		{"no newline", map[string]string{product: "ABC"}, "abc"},
		{"only the first line", map[string]string{product: "ABC \nDEF\n", machine: machineID}, "abc "},
		{"no product", map[string]string{machine: machineID, boot: bootID}, "01234567-89ab-cdef-0123-456789abcdef"},
		{"an empty first line of the product", map[string]string{product: "\nABC\n", machine: machineID}, "01234567-89ab-cdef-0123-456789abcdef"},
		{"a machine id in capitals stays", map[string]string{machine: "0123456789ABCDEF0123456789ABCDEF"}, "01234567-89AB-CDEF-0123-456789ABCDEF"},
		{"a machine id of another length", map[string]string{machine: "uninitialized\n", boot: bootID}, "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"},
		{"the boot alone", map[string]string{boot: bootID}, "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"},
		{"nothing", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for name, text := range tt.files {
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := machineIDIn(root); got != tt.want {
				t.Errorf("machineIDIn() = %q; want %q", got, tt.want)
			}
		})
	}
	// A file that cannot be read as one counts as missing.
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, product), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := machineIDIn(root); got != "" {
		t.Errorf("machineIDIn() = %q; want nothing", got)
	}
}
