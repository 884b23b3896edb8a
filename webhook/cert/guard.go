// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/subtle"
	"net/http"
	"path"
)

// Guard lets through who asks for /<webhook's name>/<token>. API servers have no client
// certificate unless somebody gives them one, and any Pod can reach the Service: it
// should not be able to reserve IDs, or to ask what other tenants have.
//
// That is a mitigation, not a lock. Who may read the webhook configurations knows the
// token, and an API server that gets no answer names the whole URL in the error that
// its user sees. So the token changes every hour, and the one before is accepted until
// no API server can have it; and the handlers trust no request where they write. What
// closes it are client certificates for the API server (an AdmissionConfiguration with
// a kubeConfigFile), or a network policy or firewall that lets API servers alone reach
// the port.
func (k *Keeper) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !k.accepts(path.Base(r.URL.Path)) {
			http.Error(w, "ask through the API server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// accepts takes the same time whichever token it is.
func (k *Keeper) accepts(text string) bool {
	tokens := k.tokens.Load()
	if tokens == nil {
		return false
	}
	found := 0
	for _, t := range *tokens {
		found |= subtle.ConstantTimeCompare([]byte(text), []byte(t.text))
	}
	return found == 1
}
