// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SourceAnnotation is the Source of a wish that stands on the object itself.
const SourceAnnotation = "annotation"

// WorkName is the name of the Assignment, Works and AppliedWork of an object: its kind and
// name as far as there is room, and a digest of group, kind, namespace and name. It is
// a DNS label.
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

// IsVolumeClaim says that an object of this kind is a volume's claim: with it the data go.
func IsVolumeClaim(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Kind: "PersistentVolumeClaim"}
}

// DefaultOnDelete is what happens to an object of this kind in its clusters when no policy says.
func DefaultOnDelete(kind schema.GroupKind) OnDelete {
	if IsVolumeClaim(kind) {
		return OnDeleteOrphan
	}
	return OnDeleteDelete
}
