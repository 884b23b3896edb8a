// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// requestLife is longer than the API server works on one request (a minute), and than
// its clock and ours differ.
const requestLife = 90 * time.Second

// protectedLately reports whether the finalizer may be younger than the request that
// deletes the object. The API server looks for finalizers when a DELETE begins; one
// that is set after that does not keep the object, which is removed at once as soon as
// admission lets it. Admission is asked about the object as it is then, so only here
// can a Pod be seen that attached meanwhile. Who set the finalizer when is in the
// managed fields; without that it may have been now.
func protectedLately(obj client.Object, now time.Time) bool {
	key := []byte(strconv.Quote("v:" + strconv.Quote(v1.InUseFinalizer)))
	for _, m := range obj.GetManagedFields() {
		if m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), key) {
			return m.Time == nil || now.Sub(m.Time.Time) < requestLife
		}
	}
	return true
}
