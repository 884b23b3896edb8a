// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
)

// cluster is a fake API server with one TenantConfig, and TenantNetworks by their assignment.
type cluster struct {
	client.Reader

	config   v1.TenantConfig
	networks map[string]string
	// attached are DanmEps, by the network's name, with its UID.
	attached map[string]string
	// home reports that they were moved: the networks' namespace has none any more.
	home bool
}

func (c *cluster) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if eps, ok := list.(*v1.DanmEpList); ok {
		lo := client.ListOptions{}
		lo.ApplyOptions(opts)
		for name, uid := range c.attached {
			if lo.Namespace == map[bool]string{false: "ns", true: "home"}[c.home] && lo.FieldSelector.String() == "spec.NetworkName="+name {
				ep := v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: lo.Namespace}}
				if c.home {
					ep.Annotations = map[string]string{v1.MovedFromAnnotation: "ns/ep"}
				}
				ep.Spec.APIType, ep.Spec.NetworkName, ep.Spec.NetworkUID = v1.KindTenantNetwork, name, uid
				eps.Items = append(eps.Items, ep)
			}
		}
		return nil
	}
	into, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return nil
	}
	for name, assigned := range c.networks {
		into.Items = append(into.Items, metadata(name, assigned))
	}
	return nil
}

// Get reads a namespace.
func (c *cluster) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetLabels(map[string]string{"team": "red"})
	return nil
}

func metadata(name, assigned string) metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{}
	o.Namespace, o.Name, o.UID, o.Annotations = "ns", name, types.UID("uid-of-"+name), map[string]string{v1.AssignedAnnotation: assigned}
	return o
}

// configs makes the cluster a reserve.Store.
type configs struct{ *cluster }

func (c configs) List(context.Context) ([]*v1.TenantConfig, error) {
	return []*v1.TenantConfig{c.config.DeepCopy()}, nil
}

func (c configs) Update(_ context.Context, o *v1.TenantConfig) (*v1.TenantConfig, error) {
	c.config = *o.DeepCopy()
	return o, nil
}

const (
	first  = "vlan/ens4/5 0000000000000001"
	second = "vlan/ens4/6 0000000000000002"
)

// Reservations follow the networks, even if the controller missed events.
func TestSweep(t *testing.T) {
	t.Parallel()
	page := func(text string) map[string]string {
		if text == "" {
			return map[string]string{}
		}
		return map[string]string{"vlan/ens4/0": text}
	}
	const one, two = "5 ns/a 0000000000000001", "6 ns/b 0000000000000002"
	cases := map[string]struct {
		reason   string
		reserved string
		networks map[string]string
		deleted  map[string]string // reported by a watch
		attached map[string]string // DanmEps, by the network's name
		home     bool              // they have moved
		after    time.Duration
		takeOver string // the TenantConfig's annotation
		team     string // whom it is for; the namespace is red's
		want     string
	}{
		"Same":      {reason: "Every reservation has its network.", reserved: one, networks: map[string]string{"a": first}, want: one, after: time.Hour},
		"Deleted":   {reason: "A deleted network's reservation is released at once.", reserved: one + ", " + two, networks: map[string]string{"a": first}, deleted: map[string]string{"b": second}, want: one},
		"Attached":  {reason: "Pods are still on its VLAN.", reserved: one + ", " + two, networks: map[string]string{"a": first}, deleted: map[string]string{"b": second}, attached: map[string]string{"b": "uid-of-b"}, want: one + ", " + two, after: time.Hour},
		"Moved":     {reason: "Its namespace was deleted, and the DanmEp of a running sandbox was moved.", reserved: one + ", " + two, networks: map[string]string{"a": first}, deleted: map[string]string{"b": second}, attached: map[string]string{"b": "uid-of-b"}, home: true, want: one + ", " + two, after: time.Hour},
		"Again":     {reason: "It was created again, and its earlier Pods are still on the earlier VLAN.", reserved: one + ", " + two, networks: map[string]string{"b": first}, deleted: map[string]string{"b": second}, attached: map[string]string{"b": "former"}, want: one + ", " + two},
		"AgainUsed": {reason: "It was created again, and its Pods are on the new VLAN.", reserved: one + ", " + two, networks: map[string]string{"b": first}, deleted: map[string]string{"b": second}, attached: map[string]string{"b": "uid-of-b"}, want: one},
		"Unknown":   {reason: "A DanmEp that DANM wrote has no network UID.", reserved: one + ", " + two, networks: map[string]string{"a": first}, deleted: map[string]string{"b": second}, attached: map[string]string{"b": ""}, want: one + ", " + two},
		"Creating":  {reason: "The network may still be stored.", reserved: one, want: one, after: 50 * time.Second},
		"NeverCame": {reason: "The API server died before it stored the network.", reserved: one + ", " + two, networks: map[string]string{"b": second}, after: 70 * time.Second, want: two},
		"Restored":  {reason: "The TenantConfig was restored without its status.", networks: map[string]string{"a": first, "b": second}, takeOver: "true", team: "red", want: one + ", " + two},
		"MadeUp":    {reason: "The network was created without admission, and no administrator requests its adoption.", reserved: one, networks: map[string]string{"a": first, "b": second}, want: one},
		"NotServed": {reason: "The annotation is on a TenantConfig for other namespaces.", reserved: one, networks: map[string]string{"a": first, "b": second}, takeOver: "true", team: "blue", want: one},
		"Plugin":    {reason: "Root would execute it.", reserved: one, networks: map[string]string{"a": first, "b": "type/bridge/1 0000000000000002"}, takeOver: "true", want: one},
		"Forged":    {reason: "The slot belongs to another network, and stays with it.", reserved: one, networks: map[string]string{"a": first, "c": "vlan/ens4/5 0000000000000003"}, want: one},
		"Outside":   {reason: "No TenantConfig offers the slot.", networks: map[string]string{"c": "vlan/ens9/5 0000000000000003"}, want: ""},
		"Garbage":   {reason: "The annotation was written by hand.", reserved: one, networks: map[string]string{"a": first, "c": "x"}, want: one},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{networks: tc.networks, attached: tc.attached, home: tc.home}
				c.config.HostDevices = []v1.HostDevice{{Name: "ens4", VNIType: "vlan", VNIRange: "1-9"}}
				c.config.Status.Reservations = page(tc.reserved)
				c.config.Annotations = map[string]string{v1.TakeOverAnnotation: tc.takeOver}
				if tc.team != "" {
					c.config.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": tc.team}}
				}
				ctx, cancel := context.WithCancel(t.Context())
				s := &reservationGC{reader: c, allocator: reserve.New(ctx, configs{c}, nil), log: logr.Discard(), wake: make(chan struct{}, 1), controllerNamespace: "home"}
				for name, assigned := range tc.deleted {
					o := metadata(name, assigned)
					s.onNetworkDeleted(&o)
				}
				done := make(chan error)
				go func() { done <- s.Start(ctx) }()
				time.Sleep(tc.after + time.Second)
				synctest.Wait()
				if diff := cmp.Diff(page(tc.want), c.config.Status.Reservations); diff != "" {
					t.Errorf("%s\nreservations: -want +got\n%s", tc.reason, diff)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
