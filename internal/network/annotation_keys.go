// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// netAttachDefsAnnotation on a Pod names its networks in the Network Plumbing Working Group's standard.
const netAttachDefsAnnotation = "k8s.v1.cni.cncf.io/networks"

// ObjectAnnotations returns the annotations of Patchbay on networks.
func ObjectAnnotations() []string {
	return []string{v1.TakeOverAnnotation, v1.AssignedAnnotation, v1.RebuildAnnotation, v1.SkipAnnotation, v1.RecoveringAnnotation}
}

// maxUnknownKeys bounds the warnings about one object.
const maxUnknownKeys = 8

// OwnAnnotations returns the annotations with a prefix of Patchbay or DANM.
func OwnAnnotations(annotations map[string]string) map[string]string {
	own := map[string]string{}
	for key, value := range annotations {
		if hasOwnPrefix(key) {
			own[key] = value
		}
	}
	return own
}

func hasOwnPrefix(key string) bool {
	return slices.ContainsFunc(annotationPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// UnknownAnnotations returns a warning for each annotation at the path that has a prefix of Patchbay
// and is not a known one.
func UnknownAnnotations(path *field.Path, annotations map[string]string, known []string) []string {
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !hasOwnPrefix(key) || slices.Contains(known, key) {
			continue
		}
		if len(warnings) == maxUnknownKeys {
			return append(warnings, fmt.Sprintf("%s: more keys have no effect", path))
		}
		advice := "remove it, or use one of " + strings.Join(known, ", ")
		if near := text.Nearest(key, known); near != "" {
			advice = "did you mean " + near + "?"
		}
		warnings = append(warnings, fmt.Sprintf("%s: Patchbay has no such key, so it has no effect: %s", path.Key(key), advice))
	}
	return warnings
}
