// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// listReader lists the DanmEps of a namespace, as the API server does.
type listReader struct {
	client.Reader
	eps []v1.DanmEp
	err error
}

func (r listReader) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Raw == nil || o.Raw.ResourceVersion != "0" {
		return errors.New("a read from etcd for each retry of kubelet")
	}
	list, ok := into.(*v1.DanmEpList)
	if !ok {
		return errors.New("not a list of DanmEps")
	}
	for _, ep := range r.eps {
		if ep.Namespace == o.Namespace && o.FieldSelector.String() == "spec.NetworkName="+ep.Spec.NetworkName {
			list.Items = append(list.Items, ep)
		}
	}
	return r.err
}

func TestPodWithAddress(t *testing.T) {
	t.Parallel()
	endpoint := func(namespace, pod, kind, v4, v6 string) v1.DanmEp {
		return v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}, Spec: v1.DanmEpSpec{
			NetworkName: "lan", APIType: kind, Pod: pod, Interface: v1.DanmEpInterface{Address: v4, AddressIPv6: v6},
		}}
	}
	eps := []v1.DanmEp{
		endpoint("red", "tenant", v1.KindTenantNetwork, "10.0.0.5/24", ""),
		endpoint("red", "broken", v1.KindClusterNetwork, "?", ""),
		endpoint("red", "web-0", v1.KindClusterNetwork, "10.0.0.5/24", "fd00::5/64"),
		endpoint("blue", "secret", v1.KindClusterNetwork, "10.0.0.6/24", ""),
	}
	cases := map[string]struct {
		reason, address, want string
		err                   error
	}{
		"V4":    {reason: "The Pod of this network, and not of another kind with the name.", address: "10.0.0.5", want: "web-0"},
		"V6":    {reason: "Both families are compared.", address: "fd00::5", want: "web-0"},
		"Other": {reason: "Pods of another namespace are not found.", address: "10.0.0.6"},
		"Error": {reason: "An error is not the same as nobody.", address: "10.0.0.5", err: errors.New("timeout")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owners := NewOwners(listReader{eps: eps, err: tc.err})
			got, err := owners.PodWithAddress(t.Context(), "red", network.Ref{Kind: v1.KindClusterNetwork, Name: "lan"}, netip.MustParseAddr(tc.address))
			if !errors.Is(err, tc.err) || tc.err == nil && (err != nil || got != tc.want) {
				t.Errorf("%s\ngot %q, %v, want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}
