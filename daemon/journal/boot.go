// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"os"
	"strings"
)

// bootIDFile changes with every boot of the kernel (random(4)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the kernel's boot ID. Records of another one have outlived
// their network namespaces.
func BootID() (string, error) { return readBootID(bootIDFile) }

func readBootID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", fmt.Errorf("read boot ID: %s is empty", path)
	}
	return id, nil
}
