// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// ErrTooLarge says that a manifest does not fit into a Work.
var ErrTooLarge = errors.New("manifest is too large")

// MarshalManifest writes an object down as JSON: fields in the order of their names, so that
// the same object makes the same bytes. Digest tells two of them apart. An error names
// the object; it is ErrTooLarge over v1alpha1.MaxManifestBytes.
func MarshalManifest(object *unstructured.Unstructured) ([]byte, error) {
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write manifest of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	raw = raw[:len(raw)-1] // MarshalJSON ends a line
	if len(raw) > v1alpha1.MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s %s/%s has %d bytes for its cluster, and at most %d fit: take data out of it",
			ErrTooLarge, object.GetKind(), object.GetNamespace(), object.GetName(), len(raw), v1alpha1.MaxManifestBytes)
	}
	return raw, nil
}

// ManifestDigest of a manifest: 32 hexadecimal digits of SHA-256.
func ManifestDigest(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return hex.EncodeToString(sum[:16])
}
