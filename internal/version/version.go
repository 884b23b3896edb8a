// SPDX-License-Identifier: Apache-2.0

// Package version says which build this is. The Makefile links the value in
// (-ldflags "-X github.com/patchbay-cni/patchbay/internal/version.version=v1.2.3"), so
// that a copy of the source without git history can be stamped as well.
package version

// version is set by the linker and never by code.
var version string

// unstamped is what an unstamped build, such as a test's, calls itself.
const unstamped = "devel"

// String returns the version as the linker was told, or "devel".
func String() string {
	if version == "" {
		return unstamped
	}
	return version
}
