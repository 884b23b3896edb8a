// SPDX-License-Identifier: Apache-2.0

package works

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

func TestWatchHealth(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		answers []int         // 0: no answer
		passed  time.Duration // since the last one
		want    bool
	}{
		"none":             {"an agent without objects misses nothing", nil, 0, true},
		"accepted":         {"the watch sends all changes", []int{200}, 0, true},
		"renewed":          {"a watch that ends in time continues where it ended", []int{200, 200}, 0, true},
		"unavailable":      {"changes are missed until the watch works again", []int{200, 503}, time.Minute, false},
		"no answer":        {"changes are missed until the watch works again", []int{200, 0}, time.Minute, false},
		"expired":          {"the objects are not listed again yet", []int{200, 410}, 0, false},
		"catching up":      {"the missed changes are on their way", []int{503, 200}, time.Second, false},
		"caught up":        {"the missed changes have come", []int{503, 200}, 2 * time.Second, true},
		"kind is gone":     {"the agent needs no watch of a kind that the cluster does not serve", []int{404}, 0, true},
		"no right":         {"the namespace of the objects may be gone", []int{403}, 0, true},
		"fails for long":   {"a broken kind must not delay the moves of all others", []int{500}, 2 * time.Minute, true},
		"failed for long":  {"its missed changes are on their way", []int{500, 500, 200}, 0, false},
		"too many at once": {"the API server takes the watch later", []int{429}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1000, 0)
			h := newWatchHealth(func() time.Time { return now })
			var code int
			transport := h.observe(roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				if h.isComplete() && r.URL.Query().Has("watch") {
					t.Error("complete while the API server has not answered, want not")
				}
				if code == 0 {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: code, Body: http.NoBody}, nil
			}))
			for _, code = range tc.answers {
				for _, url := range []string{"https://cluster.example/apis/apps/v1/deployments?watch=true", "https://cluster.example/readyz"} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
					if err != nil {
						t.Fatal(err)
					}
					if answer, err := transport.RoundTrip(r); err == nil {
						_ = answer.Body.Close()
					}
				}
			}
			now = now.Add(tc.passed)
			if got := h.isComplete(); got != tc.want {
				t.Errorf("%s: complete %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// roundTripperFunc implements http.RoundTripper.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
