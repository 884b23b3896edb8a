// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

func endpoint(pod, node, network, address, address6 string) v1.DanmEp {
	return v1.DanmEp{Spec: v1.DanmEpSpec{
		Pod: pod, PodUID: pod, Host: node, NetworkName: network, NetworkUID: network, NetworkType: "ipvlan",
		Interface: v1.DanmEpInterface{Name: "if", Address: address, AddressIPv6: address6, MacAddress: "02:00:00:00:00:01"},
	}}
}

func pod(name, annotation string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{v1.InterfacesAnnotation: annotation},
	}}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	all := []v1.DanmEp{
		endpoint("a", "n1", "blue", "10.0.0.1/24", "fd00::1/64"),
		endpoint("b", "n1", "blue", "10.0.0.2/24", ""),
		endpoint("c", "n2", "blue", "10.0.0.3/24", "fd00::3/64"),
		endpoint("c", "n2", "red", "10.1.0.3/24", ""),
	}
	var got []string
	for _, r := range routes(all) {
		got = append(got, fmt.Sprintf("%s: %s@%s -> %s@%s %s", r.network, r.from, r.fromNode, r.to, r.toNode, r.address))
	}
	want := []string{
		"blue: a@n1 -> c@n2 10.0.0.3",
		"blue: a@n1 -> c@n2 fd00::3",
		"blue: c@n2 -> a@n1 10.0.0.1",
		"blue: c@n2 -> a@n1 fd00::1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one ping per network, direction and family, none within a node:\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	pods := podList{Items: []corev1.Pod{pod("a", `[{},{}]`), pod("b", `[{}]`), pod("c", "")}}
	got := missingEndpoints(pods, []v1.DanmEp{
		endpoint("a", "n1", "blue", "", ""), endpoint("b", "n1", "blue", "", ""),
	})
	if diff := cmp.Diff([]string{"a", "c"}, got); diff != "" {
		t.Errorf("every interface of the annotation counts, and the default network without one:\n%s", diff)
	}
}

// fake answers as a cluster with one Pod on each of two nodes.
type fake struct {
	mu    sync.Mutex
	calls []string
	mute  netip.Addr
}

func (f *fake) Kubectl(_ context.Context, args ...string) (string, error) {
	line := strings.Join(args, " ")
	f.mu.Lock()
	f.calls = append(f.calls, line)
	f.mu.Unlock()
	var answer any
	switch {
	case strings.HasPrefix(line, "get pods"):
		answer = podList{Items: []corev1.Pod{pod("a", `[{}]`), pod("b", `[{}]`)}}
	case strings.HasPrefix(line, "get danmeps"):
		answer = v1.DanmEpList{Items: []v1.DanmEp{
			endpoint("a", "n1", "blue", "10.0.0.1/24", ""), endpoint("b", "n2", "blue", "10.0.0.2/24", ""),
		}}
	case strings.HasSuffix(line, " "+f.mute.String()):
		return "", errors.New("exit code 1")
	default:
		return "round-trip min/avg/max = 0.1/0.2/0.3 ms\n", nil
	}
	raw, err := json.Marshal(answer)
	return string(raw), err
}

func TestRun(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		mute   netip.Addr
		want   error
		lines  []string
	}{
		"AllAnswer": {
			reason: "Table and round trips are shown.",
			lines:  []string{"10.0.0.1/24", "0.1/0.2/0.3 ms", "a (n1)"},
		},
		"OneIsMute": {
			reason: "A ping without answer fails the demo, after all were tried.",
			mute:   netip.MustParseAddr("10.0.0.2"),
			want:   ErrNoAnswer,
			lines:  []string{"no answer", "0.1/0.2/0.3 ms"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			lab := &fake{mute: tc.mute}
			if err := Run(t.Context(), lab, "examples/demo", &out); !errors.Is(err, tc.want) {
				t.Errorf("%s\nRun: got %v, want %v", tc.reason, err, tc.want)
			}
			for _, line := range tc.lines {
				if !strings.Contains(out.String(), line) {
					t.Errorf("%s\noutput lacks %q:\n%s", tc.reason, line, out.String())
				}
			}
			if lab.calls[0] != "apply --kustomize examples/demo" {
				t.Errorf("first call: got %q", lab.calls[0])
			}
		})
	}
}
