// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Whoever speaks to the socket, names become journal keys, paths and links.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*attach.Request)
		del    bool
	}{
		"NoContainerID":     {"the journal's key", func(r *attach.Request) { r.ContainerID = "" }, true},
		"ContainerIDPath":   {"no way out of a folder", func(r *attach.Request) { r.ContainerID = "../../etc" }, true},
		"ContainerIDLong":   {"a key has a bound", func(r *attach.Request) { r.ContainerID = strings.Repeat("a", 254) }, true},
		"ContainerIDNul":    {"the key's separator", func(r *attach.Request) { r.ContainerID = "a\x00b" }, true},
		"NoIfName":          {"the journal's key", func(r *attach.Request) { r.IfName = "" }, true},
		"IfNameLong":        {"IFNAMSIZ", func(r *attach.Request) { r.IfName = "eth0123456789012" }, true},
		"IfNameDots":        {"sysctls go by it", func(r *attach.Request) { r.IfName = ".." }, true},
		"IfNameSlash":       {"sysctls go by it", func(r *attach.Request) { r.IfName = "a/b" }, true},
		"IfNameColon":       {"an alias in the kernel's eyes", func(r *attach.Request) { r.IfName = "eth0:1" }, true},
		"IfNameSpace":       {"forged log lines", func(r *attach.Request) { r.IfName = "eth0\n" }, true},
		"NoNetns":           {"ADD needs one", func(r *attach.Request) { r.Netns = "" }, false},
		"NetnsRelative":     {"another folder in the daemon than in the runtime", func(r *attach.Request) { r.Netns = "netns/a" }, false},
		"NetnsDots":         {"means something else after a rename", func(r *attach.Request) { r.Netns = "/run/netns/../a" }, false},
		"NetnsNul":          {"the kernel's end of a path", func(r *attach.Request) { r.Netns = "/run/a\x00" }, false},
		"NetnsLong":         {"PATH_MAX", func(r *attach.Request) { r.Netns = "/" + strings.Repeat("a", 5000) }, false},
		"NoPod":             {"ADD needs one", func(r *attach.Request) { r.PodName = "" }, false},
		"PodPath":           {"goes into URLs", func(r *attach.Request) { r.PodName = "a/../../nodes" }, false},
		"PodNamespacePath":  {"goes into URLs", func(r *attach.Request) { r.PodNamespace = "a?b" }, false},
		"PodUID":            {"goes into CNI_ARGS", func(r *attach.Request) { r.PodUID = "a;X=1" }, false},
		"NetworkNameSpaces": {"goes into the journal", func(r *attach.Request) { r.NetName = "a b" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			l := w.mustStart(t)
			l.calls = nil
			req := w.sandbox("a")
			tc.change(&req)
			if _, err := l.Add(context.Background(), req); !errors.Is(err, attach.ErrInvalidRequest) {
				t.Errorf("%s: ADD: %v, want ErrInvalidRequest", tc.reason, err)
			}
			if err := l.Del(context.Background(), req); errors.Is(err, attach.ErrInvalidRequest) != tc.del {
				t.Errorf("%s: DEL: %v; refused: %t, want %t", tc.reason, err, !tc.del, tc.del)
			}
			if len(l.made("Journal.Put")) > 0 {
				t.Errorf("%s: it was journalled", tc.reason)
			}
		})
	}
}
