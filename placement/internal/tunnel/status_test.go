// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// An interim answer is none: after it, an error must still be written.
func TestRecorderIgnoresInterimAnswers(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusContinue, http.StatusSwitchingProtocols, http.StatusEarlyHints} {
		w := httptest.NewRecorder()
		r := &Recorder{ResponseWriter: w}
		if r.WriteHeader(code); r.Code != 0 {
			t.Errorf("%d: got the code %d", code, r.Code)
		}
		if r.WriteHeader(http.StatusBadGateway); r.Code != http.StatusBadGateway || w.Code != http.StatusBadGateway {
			t.Errorf("%d: got %d, and the client %d", code, r.Code, w.Code)
		}
	}
}
