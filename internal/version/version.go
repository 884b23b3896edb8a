// SPDX-License-Identifier: Apache-2.0

// Package version contains the version of this build. The Makefile sets the value when it links
// (-ldflags "-X github.com/patchbay-cni/patchbay/internal/version.version=v1.2.3"), so that a source tree
// without git history has a version too.
package version

// version is set by the linker only.
var version string

// unstamped is the version of a build without one, such as a test.
const unstamped = "devel"

// String returns the version that the linker set, or "devel".
func String() string {
	if version == "" {
		return unstamped
	}
	return version
}
