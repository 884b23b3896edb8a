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

// A client at the hub gets the named headers only, and answers that it cannot take for the hub's own.
func TestCheckResponse(t *testing.T) {
	t.Parallel()
	clean := http.Header{"X-Content-Type-Options": {"nosniff"}, "Content-Security-Policy": {"sandbox"}, "Content-Type": {"text/html"}, "Warning": {"a", "b"}}
	cases := map[string]struct {
		reason string
		code   int
		passes bool
	}{
		"OK":          {"an ordinary answer", 200, true},
		"NotModified": {"an answer to If-None-Match", 304, true},
		"Unavailable": {"an error of the cluster", 503, true},
		"Redirect":    {"the client would follow it with its credential", 302, false},
		"Stranger":    {"the client would ask for another credential", 401, false},
		"Switch":      {"only an upgraded exchange has it", 101, false},
		"Interim":     {"it is no answer", 103, false},
		"Zero":        {"net/http panics", 0, false},
		"Negative":    {"net/http panics", -1, false},
		"Above":       {"HTTP does not define it", 600, false},
		"FourDigits":  {"net/http panics", 1000, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := &http.Response{StatusCode: tc.code, Header: http.Header{
				"Content-Type": {"text/html"}, "Warning": {"a", "b"}, "Set-Cookie": {"a=b"}, "Location": {"/"}, "Clear-Site-Data": {"*"}, "Refresh": {"0; url=/"},
				"Access-Control-Allow-Origin": {"*"}, "Link": {"</>"}, "Content-Security-Policy": {"default-src *"}, "Www-Authenticate": {"Basic"},
				"Connection": {"Upgrade"}, UpgradedHeader: {"websocket"},
			}}
			if err := CheckResponse(response); (err == nil) != tc.passes {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if diff := cmp.Diff(clean, response.Header); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
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
