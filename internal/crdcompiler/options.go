// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"strings"
)

// Options are what Compile does with every template.
type Options struct {
	// Maps has the folders of files that are outside of the template's folder.
	Maps []Map
	// MaxDescription is how many characters a description of Kubernetes may have. With 0 these
	// descriptions are left out, and with a negative number nothing is cut. The descriptions in
	// templates and their files always stay.
	MaxDescription int
	// CutRecursion makes a type that contains itself accept any value where it occurs again. Without
	// it, such a type is an error.
	CutRecursion bool
}

// Map names the folder of the documents whose names begin with a prefix.
type Map struct{ Prefix, Folder string }

// ParseMap reads a Map such as python://PACKAGE/=DIR.
func ParseMap(text string) (Map, error) {
	prefix, folder, ok := strings.Cut(text, "/=")
	if !ok || prefix == "" || folder == "" {
		return Map{}, fmt.Errorf("must be PREFIX/=DIR, such as python://PACKAGE/=./PACKAGE: got %q", text)
	}
	return Map{Prefix: prefix + "/", Folder: folder}, nil
}
