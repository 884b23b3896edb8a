// SPDX-License-Identifier: Apache-2.0

package addresses

import "encoding/base64"

// page is the first page of a bitmap with these bits set.
func page(bits ...int) string {
	b := make([]byte, 128)
	for _, i := range bits {
		b[i/8] |= 1 << (i % 8)
	}
	return base64.StdEncoding.EncodeToString(b)
}
