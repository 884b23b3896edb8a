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

// ErrTooLarge is the error for a manifest that does not fit into a Work.
var ErrTooLarge = errors.New("manifest is too large")

// MarshalManifest encodes an object as JSON with sorted fields, so that the same object gives the same bytes.
// Errors name the object; above v1alpha1.MaxManifestBytes they wrap ErrTooLarge.
func MarshalManifest(object *unstructured.Unstructured) ([]byte, error) {
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode manifest of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	raw = raw[:len(raw)-1] // MarshalJSON appends a newline
	if len(raw) > v1alpha1.MaxManifestBytes {
		return nil, fmt.Errorf("%w: %s %s/%s has %d bytes for its cluster, and must have at most %d: remove data",
			ErrTooLarge, object.GetKind(), object.GetNamespace(), object.GetName(), len(raw), v1alpha1.MaxManifestBytes)
	}
	return raw, nil
}

// ManifestDigest returns the first 32 hexadecimal digits of a manifest's SHA-256.
func ManifestDigest(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return hex.EncodeToString(sum[:16])
}
