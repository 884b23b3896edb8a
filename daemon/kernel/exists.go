// SPDX-License-Identifier: Apache-2.0

package kernel

import "errors"

// Exists reports whether path is a network namespace now.
func (k *Kernel) Exists(path string) (bool, error) {
	ns, err := openNamespace(path)
	if errors.Is(err, ErrNamespaceGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, ns.Close()
}
