// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/internal/text"
)

// Definitions are Kubernetes' types in one minor.
type Definitions struct {
	Minor   string
	schemas map[string]schema
}

// Names returns the names of all definitions.
func (d *Definitions) Names() []string { return slices.Sorted(maps.Keys(d.schemas)) }

func (d *Definitions) find(name string) (schema, error) {
	if s, ok := d.schemas[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("%q must be a definition of Kubernetes%s", name, d.suggestion(name))
}

// suggestion names the definition that was probably meant: one that ends with the given name, of
// which core/v1 is the first choice, or one with a similar name.
func (d *Definitions) suggestion(name string) string {
	names := d.Names()
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(strings.Replace(a, ".core.v1.", ".", 1), strings.Replace(b, ".core.v1.", ".", 1))
	})
	for _, n := range names {
		if strings.HasSuffix(n, "."+name) {
			return fmt.Sprintf(": did you mean %q?", n)
		}
	}
	if n := text.Nearest(name, names); n != "" {
		return fmt.Sprintf(": did you mean %q?", n)
	}
	return ", or a file with its folder, such as ./types.yaml"
}
