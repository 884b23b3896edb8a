// SPDX-License-Identifier: Apache-2.0

// Package version contains the version of this build. The Makefile sets the value when it links
// (-ldflags "-X github.com/patchbay-cni/patchbay/internal/version.version=v1.2.3"), so that a source tree
// without git history has a version too. A release also sets the registry of its images.
package version

// version is set by the linker only.
var version string

// registry is set by the linker only. Builds that are not a release have none.
var registry string //nolint:gochecknoglobals // the linker can set nothing else

// unstamped is the version of a build without one, such as a test.
const unstamped = "devel"

// LocalRegistry is the registry in the names of images that belong to no release. No resolver answers for
// the name, so that a node without the image fails at once instead of asking another registry for it.
const LocalRegistry = "patchbay.local"

// DevelopmentTag is the tag that `make images` gives to each image beside the version.
const DevelopmentTag = "devel"

// String returns the version that the linker set, or "devel".
func String() string {
	if version == "" {
		return unstamped
	}
	return version
}

// Image returns the full name of an image that belongs to this build: that of the release, or the
// one of `make images`.
func Image(name string) string {
	if registry == "" {
		return LocalRegistry + "/" + name + ":" + DevelopmentTag
	}
	return registry + "/" + name + ":" + String()
}
