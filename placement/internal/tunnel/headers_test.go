// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A cluster gets the named headers only.
func TestRequestHeader(t *testing.T) {
	t.Parallel()
	got := RequestHeader(http.Header{
		"Accept": {"a", "b"}, "Authorization": {"Bearer x"}, "Impersonate-User": {"admin"}, "Impersonate-Extra-A": {"b"}, "X-Remote-User": {"admin"},
		"X-Remote-Extra-A": {"b"}, "X-Patchbay-User": {"admin"}, "X-Patchbay-Namespace": {""}, "X-Forwarded-For": {"::1"}, "Cookie": {"a=b"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io", "v4.channel.k8s.io, Base64URL.bearer.authorization.k8s.io.dG9rZW4"},
	})
	want := http.Header{"Accept": {"a", "b"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestUpgradeOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		header http.Header
		want   string
	}{
		"Upgrade": {"a request to switch protocols", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, "websocket"},
		"List":    {"the header is a list, and ignores case", http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"SPDY/3.1"}}, "SPDY/3.1"},
		"Alone":   {"without Connection it means nothing", http.Header{"Upgrade": {"websocket"}}, ""},
		"None":    {"an ordinary request", http.Header{}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := UpgradeOf(tc.header); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
