// SPDX-License-Identifier: Apache-2.0

// Command testdata prints the version and the image that it was linked with.
package main

import (
	"fmt"

	"github.com/patchbay-cni/patchbay/internal/version"
)

func main() { fmt.Println(version.String(), version.Image("patchbayd")) }
