// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// Names in a request become journal keys, paths and links, and any root process can send a request.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*attach.Request)
		del    bool
	}{
		"NoContainerID":     {"The journal's key must not be empty.", func(r *attach.Request) { r.ContainerID = "" }, true},
		"ContainerIDPath":   {"A name must not leave a folder.", func(r *attach.Request) { r.ContainerID = "../../etc" }, true},
		"ContainerIDLong":   {"The length of a key is limited.", func(r *attach.Request) { r.ContainerID = strings.Repeat("a", 254) }, true},
		"ContainerIDNul":    {"NUL separates the parts of a key.", func(r *attach.Request) { r.ContainerID = "a\x00b" }, true},
		"NoIfName":          {"The journal's key must not be empty.", func(r *attach.Request) { r.IfName = "" }, true},
		"IfNameLong":        {"The kernel limits the length (IFNAMSIZ).", func(r *attach.Request) { r.IfName = "eth0123456789012" }, true},
		"IfNameDots":        {"The name is part of sysctl paths.", func(r *attach.Request) { r.IfName = ".." }, true},
		"IfNameSlash":       {"The name is part of sysctl paths.", func(r *attach.Request) { r.IfName = "a/b" }, true},
		"IfNameColon":       {"The kernel reads it as an alias.", func(r *attach.Request) { r.IfName = "eth0:1" }, true},
		"IfNameSpace":       {"A line break would forge log lines.", func(r *attach.Request) { r.IfName = "eth0\n" }, true},
		"NoNetns":           {"ADD requires a network namespace.", func(r *attach.Request) { r.Netns = "" }, false},
		"NetnsRelative":     {"Daemon and runtime have different working directories.", func(r *attach.Request) { r.Netns = "netns/a" }, false},
		"NetnsDots":         {"The path depends on other folders.", func(r *attach.Request) { r.Netns = "/run/netns/../a" }, false},
		"NetnsNul":          {"NUL ends a path.", func(r *attach.Request) { r.Netns = "/run/a\x00" }, false},
		"NetnsLong":         {"The kernel limits the length (PATH_MAX).", func(r *attach.Request) { r.Netns = "/" + strings.Repeat("a", 5000) }, false},
		"NoPod":             {"ADD requires a Pod.", func(r *attach.Request) { r.PodName = "" }, false},
		"PodPath":           {"The name is part of URLs.", func(r *attach.Request) { r.PodName = "a/../../nodes" }, false},
		"PodNamespacePath":  {"The name is part of URLs.", func(r *attach.Request) { r.PodNamespace = "a?b" }, false},
		"PodUID":            {"The UID is part of CNI_ARGS.", func(r *attach.Request) { r.PodUID = "a;X=1" }, false},
		"NetworkNameSpaces": {"The name is part of the journal.", func(r *attach.Request) { r.NetName = "a b" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment()
			d := env.mustStart(t)
			d.calls = nil
			req := env.sandbox("a")
			tc.change(&req)
			if _, err := d.Add(context.Background(), req); !errors.Is(err, attach.ErrInvalidRequest) {
				t.Errorf("%s: ADD: got %v, want ErrInvalidRequest", tc.reason, err)
			}
			if err := d.Del(context.Background(), req); errors.Is(err, attach.ErrInvalidRequest) != tc.del {
				t.Errorf("%s: DEL: got %v, invalid %t, want %t", tc.reason, err, !tc.del, tc.del)
			}
			if len(d.callsWithPrefix("Journal.Put")) > 0 {
				t.Errorf("%s: got a journal write, want none", tc.reason)
			}
		})
	}
}
