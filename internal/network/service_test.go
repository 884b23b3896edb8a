// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

func TestParseService(t *testing.T) {
	t.Parallel()
	blue := network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "blue"}
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		selecting   bool
		want        *network.ServiceRequest
		refused     []string
	}{
		"None":    {reason: "The Service has no annotation of Patchbay.", annotations: map[string]string{"a": "b"}, selecting: true},
		"Network": {reason: "A Service may have one network.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue"}, want: &network.ServiceRequest{Selector: map[string]string{"app": "web"}, Networks: []network.Ref{blue}}},
		"Legacy":  {reason: "The annotations of DANM 4.3 are accepted.", annotations: map[string]string{"danm.k8s.io/selector": `{"app": "web"}`, "danm.k8s.io/network": "blue"}, want: &network.ServiceRequest{Selector: map[string]string{"app": "web"}, Networks: []network.Ref{blue}}},
		"Two": {reason: "A Service may have two networks.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue", "danm.io/clusterNetwork": "red"},
			want: &network.ServiceRequest{Selector: map[string]string{"app": "web"}, Networks: []network.Ref{{Kind: v1.KindClusterNetwork, Name: "red"}, blue}}},
		"Equal":      {reason: "Both names of an annotation may have one value.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue", "danm.k8s.io/network": "blue"}, want: &network.ServiceRequest{Selector: map[string]string{"app": "web"}, Networks: []network.Ref{blue}}},
		"Differ":     {reason: "One of two values would be ignored.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`, "danm.io/network": "blue", "danm.k8s.io/network": "red"}, refused: []string{"metadata.annotations[danm.k8s.io/network]: Forbidden: must not differ from danm.io/network"}},
		"NoNetwork":  {reason: "A Service needs a network.", annotations: map[string]string{"danm.io/selector": `{"app": "web"}`}, refused: []string{"danm.io/network", "clusterNetwork"}},
		"NoSelector": {reason: "A Service needs a selector.", annotations: map[string]string{"danm.io/network": "blue"}, refused: []string{"danm.io/selector", "Required"}},
		"JSON":       {reason: "The selector must be JSON.", annotations: map[string]string{"danm.io/selector": `app=web`, "danm.io/network": "blue"}, refused: []string{"danm.io/selector", "app=web", `{"app": "web"}`}},
		"Number":     {reason: "The values of labels must be strings.", annotations: map[string]string{"danm.io/selector": `{"a": 1}`, "danm.io/network": "blue"}, refused: []string{"danm.io/selector"}},
		"All":        {reason: "An empty selector selects every Pod of the namespace.", annotations: map[string]string{"danm.io/selector": `{}`, "danm.io/network": "blue"}, refused: []string{"selects every Pod"}},
		"Label":      {reason: "The key must be valid for a label.", annotations: map[string]string{"danm.io/selector": `{"a b": "c"}`, "danm.io/network": "blue"}, refused: []string{"danm.io/selector", "a b"}},
		"Name":       {reason: "The name must be valid for an object.", annotations: map[string]string{"danm.io/selector": `{"a": "b"}`, "danm.io/network": "other/blue"}, refused: []string{"danm.io/network", "other/blue"}},
		"Selecting":  {reason: "Kubernetes writes endpoints of a Service with a selector too.", annotations: map[string]string{"danm.io/selector": `{"a": "b"}`, "danm.io/network": "blue"}, selecting: true, refused: []string{"spec.selector", "leave it out"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := network.ParseService("ns", tc.annotations, tc.selecting)
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, network.ErrInvalid) {
				t.Fatalf("%s\nParseService: got %v", tc.reason, err)
			}
			for _, part := range tc.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nParseService: got %q, want %q in it", tc.reason, err, part)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nParseService: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
