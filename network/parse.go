// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

const (
	// maxAnnotation bounds the work on what a user wrote; the API server's own
	// bound is 256 KiB for all annotations together.
	maxAnnotation = 64 << 10
	// maxInterfaces is far more than a Pod can use.
	maxInterfaces = 256
)

// ParseInterfaces reads the interfaces that a Pod asks for in danm.io/interfaces
// or, by its older name, danm.k8s.io/interfaces. It returns nothing for a Pod
// with neither, or with an empty list: that Pod gets the default network. The
// error is an *InvalidError that names each entry by its index and its field, and
// for malformed JSON the byte.
func ParseInterfaces(annotations map[string]string) ([]InterfaceRequest, error) {
	var f faults
	path := field.NewPath("metadata", "annotations")
	key, value, ok := interfacesAnnotation(&f, path, annotations)
	if !ok {
		return nil, f.err("")
	}
	path = path.Key(key)
	entries := splitEntries(&f, path, value)
	requests := make([]InterfaceRequest, 0, len(entries))
	for i, raw := range entries {
		requests = append(requests, parseEntry(&f, path.Index(i), raw))
	}
	if err := f.err(""); err != nil {
		return nil, err
	}
	return requests, nil
}

// interfacesAnnotation picks the one of the two annotations that is set.
func interfacesAnnotation(f *faults, path *field.Path, annotations map[string]string) (key, value string, ok bool) {
	value, ok = annotations[v1.InterfacesAnnotation]
	older, both := annotations[v1.LegacyInterfacesAnnotation]
	switch {
	case ok && both && value != older:
		f.forbidden(path.Key(v1.LegacyInterfacesAnnotation),
			fmt.Sprintf("differs from %s: keep one of the two", v1.InterfacesAnnotation))
		return "", "", false
	case ok:
		return v1.InterfacesAnnotation, value, true
	case both:
		return v1.LegacyInterfacesAnnotation, older, true
	}
	return "", "", false
}
