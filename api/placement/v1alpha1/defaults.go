// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SourceAnnotation is the Source of a Decision that comes from the annotation on the object.
const SourceAnnotation = "annotation"

// WorkName returns the name of the Assignment, Works and AppliedWork of an object: its kind and name, cut
// to 46 bytes, and a digest of group, kind, namespace and name. It is a DNS label.
func WorkName(group, kind, namespace, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{group, kind, namespace, name}, "\x00")))
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-' // a name may have dots and, for RBAC, colons
	}, strings.ToLower(kind+"-"+name))
	readable = strings.Trim(readable[:min(len(readable), 46)], "-")
	if readable == "" || readable[0] < 'a' {
		readable = "x" + readable
	}
	return readable + "-" + hex.EncodeToString(sum[:8])
}

// IsVolumeClaim tells whether objects of this kind are PersistentVolumeClaims, whose deletion deletes data.
func IsVolumeClaim(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Kind: "PersistentVolumeClaim"}
}

// DefaultOnDelete is the OnDelete of an object of this kind without one in its policy.
func DefaultOnDelete(kind schema.GroupKind) OnDelete {
	if IsVolumeClaim(kind) {
		return OnDeleteOrphan
	}
	return OnDeleteDelete
}
