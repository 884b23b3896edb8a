// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"path"
)

// newToken is unguessable. crypto/rand.Read never fails.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Guard lets through who asks for /<webhook's name>/<token>. API servers have no client
// certificate unless somebody gives them one, and any Pod can reach the Service: it
// must not be able to reserve IDs, or to ask what other tenants have. The token stands
// in the webhook configurations, which only cluster administrators may read.
func (k *Keeper) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := k.token.Load()
		if token == nil || subtle.ConstantTimeCompare([]byte(path.Base(r.URL.Path)), []byte(*token)) != 1 {
			http.Error(w, "ask through the API server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
