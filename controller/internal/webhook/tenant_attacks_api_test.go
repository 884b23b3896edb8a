// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// tenantOf returns the client of a user with only the rights of deployments/roles/tenant.yaml, in
// one namespace.
func tenantOf(t *testing.T, env *apitest.Env, ns string) client.Client {
	t.Helper()
	name := "tenant-of-" + ns
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-tenant"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if err := env.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	c := env.As(t, apitest.Tenant(name))
	eventually(t, "the tenant has its rights", func() bool {
		return c.List(t.Context(), &v1.TenantNetworkList{}, client.InNamespace(ns)) == nil
	})
	return c
}

// uses creates a Node with these Pod ranges and addresses and the NodeNetwork of a NIC, and waits
// until admission has seen them.
func uses(t *testing.T, env *apitest.Env, tenant client.Client, ns string) {
	t.Helper()
	name := apitest.Name("node")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.211.0.0/24", "fd00:211::/64"}}}
	if err := env.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), node) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.18.7.7"}, {Type: corev1.NodeHostName, Address: name}}
	if err := env.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	nics := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := env.Client.Create(t.Context(), nics); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.WithoutCancel(t.Context()), nics) })
	nics.Status.NICs = []v1.NIC{{Name: "ens9", Addresses: []string{"198.19.0.9/24"}}}
	if err := env.Client.Status().Update(t.Context(), nics); err != nil {
		t.Fatal(err)
	}
	for _, cidr := range []string{"10.211.0.0/24", "198.18.7.7/32", "198.19.0.0/24"} {
		eventually(t, "admission knows of "+cidr, func() bool {
			tn := tenantNetwork(t, ns, "probe", `{Options: {cidr: "`+cidr+`"}}`)
			return apierrors.IsInvalid(tenant.Create(t.Context(), tn, client.DryRunAll))
		})
	}
}

// A tenant gets no subnet of the cluster's own: its Services would lead clients to other Pods,
// nodes or the API server (CVE-2021-25740).
func TestTenantSubnets(t *testing.T) {
	t.Parallel()
	env := start(t)
	ns, limited, trusted := env.Namespace(t), env.Namespace(t), env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-150"}]}`)
	offer(t, env, limited, `{hostDevices: [{name: "%"}], subnets: [10.50.0.0/16, "fd00:50::/32", 10.96.0.0/12]}`)
	offer(t, env, trusted, `{hostDevices: [{name: "%"}], allowedClusterSubnets: [10.211.0.0/24]}`)
	tenants := map[string]client.Client{}
	for _, n := range []string{ns, limited, trusted} {
		tenants[n] = tenantOf(t, env, n)
	}
	uses(t, env, tenants[ns], ns)
	cases := map[string]struct {
		reason, ns, options string
		refused             []string
	}{
		"Pods":         {reason: "The subnet is that of a node's Pods.", ns: ns, options: `{cidr: 10.211.0.0/24}`, refused: []string{"spec.Options.cidr", "10.211.0.0/24", "for Pods", "allowedClusterSubnets"}},
		"OnePod":       {reason: "The address is in a node's Pod range.", ns: ns, options: `{cidr: 10.211.0.7/32}`, refused: []string{"spec.Options.cidr", "for Pods"}},
		"AllPods":      {reason: "The subnet contains a Pod range.", ns: ns, options: `{cidr: 10.0.0.0/8, allocation_pool: {start: 10.1.0.1, end: 10.1.0.9}}`, refused: []string{"spec.Options.cidr", "10.0.0.0/8", "must not overlap"}},
		"PodsV6":       {reason: "The IPv6 subnet is in a Pod range, beside a harmless IPv4 subnet.", ns: ns, options: `{cidr: 10.9.0.0/24, net6: "fd00:211::/48"}`, refused: []string{"spec.Options.net6", "fd00:211::/64", "for Pods"}},
		"Services":     {reason: "The subnet is in the range of cluster IPs.", ns: ns, options: `{cidr: 10.96.0.0/24}`, refused: []string{"spec.Options.cidr", "10.96.0.0/16", "for Services"}},
		"HostBits":     {reason: "The subnet is written with host bits.", ns: ns, options: `{cidr: 10.96.7.7/24}`, refused: []string{"spec.Options.cidr", "for Services"}},
		"Node":         {reason: "The subnet contains a node's address.", ns: ns, options: `{cidr: 198.18.7.0/29}`, refused: []string{"spec.Options.cidr", "198.18.7.7/32", "for nodes"}},
		"NIC":          {reason: "The subnet is on the segment of a node's NIC.", ns: ns, options: `{cidr: 198.19.0.128/25}`, refused: []string{"spec.Options.cidr", "198.19.0.0/24", "subnets of its nodes"}},
		"Own":          {reason: "Any other subnet is free.", ns: ns, options: `{cidr: 10.9.0.0/24, net6: "fd00:9::/64"}`},
		"Outside":      {reason: "An administrator limits the subnets.", ns: limited, options: `{cidr: 10.51.0.0/24}`, refused: []string{"spec.Options.cidr", "10.51.0.0/24", "use a part of 10.50.0.0/16"}},
		"Larger":       {reason: "The subnet is larger than the limit.", ns: limited, options: `{cidr: 10.48.0.0/14}`, refused: []string{"spec.Options.cidr", "10.50.0.0/16"}},
		"Inside":       {reason: "The subnets are inside the limits.", ns: limited, options: `{cidr: 10.50.3.0/24, net6: "fd00:50:1::/64"}`},
		"NeverCluster": {reason: "A limit that contains a range of the cluster is no permit.", ns: limited, options: `{cidr: 10.96.0.0/24}`, refused: []string{"spec.Options.cidr", "for Services"}},
		"Permitted":    {reason: "An administrator permits the range.", ns: trusted, options: `{cidr: 10.211.0.0/25}`},
		"MoreThanThat": {reason: "The permit is for a smaller range.", ns: trusted, options: `{cidr: 10.210.0.0/15}`, refused: []string{"spec.Options.cidr", "for Pods"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := `{Options: ` + tc.options + `}`
			for _, dry := range []bool{true, false} {
				tn := tenantNetwork(t, tc.ns, apitest.Name("net"), spec)
				var opts []client.CreateOption
				if dry {
					opts = append(opts, client.DryRunAll)
				}
				checkAnswer(t, tc.reason, tenants[tc.ns].Create(t.Context(), tn, opts...), tc.refused)
			}
		})
	}
	checkReserved(t, env, config, 1) // a rejected network has no reservation
	tn := tenantNetwork(t, ns, "later", `{Options: {cidr: 10.9.1.0/24}}`)
	if err := tenants[ns].Create(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{
		`{"spec": {"Options": {"cidr": "10.96.0.0/24"}}}`, `{"spec": {"Options": {"net6": "fd00:211::/64"}}}`,
	} {
		err := tenants[ns].Patch(t.Context(), tn.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
		checkAnswer(t, "a change to it", err, []string{"which the cluster uses"})
	}
}

// A tenant whose creations are rejected after admission, for the name or a quota, withholds at most
// two IDs from others, with any number of concurrent creations.
func TestTenantCannotEmptyARange(t *testing.T) {
	t.Parallel()
	env := start(t)
	ns := env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-119"}], budgets: {ids: 4, networks: 5}}`)
	patient := tenantOf(t, env, ns)
	impatient := env.AsWithoutRetry(t, apitest.Tenant("tenant-of-"+ns))
	create := func(name string, opts ...client.CreateOption) error {
		return impatient.Create(t.Context(), tenantNetwork(t, ns, name, `{}`), opts...)
	}
	if err := create("first"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := create("first"); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create it again: got %v, want that it exists", err)
		}
	}
	checkReserved(t, env, config, 1)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "q"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/tenantnetworks.danm.io": resource.MustParse("0")},
	}}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard = quota.Spec.Hard // its controller does not run here
	quota.Status.Used = corev1.ResourceList{"count/tenantnetworks.danm.io": resource.MustParse("1")}
	if err := env.Client.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is in force", func() bool { return apierrors.IsForbidden(create("probe", client.DryRunAll)) })
	checkReserved(t, env, config, 1)
	answers := make(chan error)
	for i := range 12 {
		go func() { answers <- create("q" + strconv.Itoa(i)) }()
	}
	full := 0
	for range 12 {
		switch err := <-answers; {
		case apierrors.IsTooManyRequests(err):
			full++
			checkAnswer(t, "the others", err, []string{ns, "try again"})
			if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != 10 {
				t.Errorf("the others are to be tried again after %d s, want 10", seconds)
			}
		case !apierrors.IsForbidden(err):
			t.Errorf("create beyond the quota: %v", err)
		}
	}
	if got := len(reserved(t, env, config)); got > 3 || full < 10 {
		t.Errorf("%d reservations and %d refusals without one, want at most 3 and the others", got, full)
	}
	if err := env.Client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	// After the release the budget decides. A usual client waits by itself.
	eventuallyWithin(t, 4*time.Minute, "the tenant creates again", func() bool {
		return patient.Create(t.Context(), tenantNetwork(t, ns, "second", `{}`)) == nil
	})
	for _, name := range []string{"third", "fourth"} {
		eventually(t, name+" is created", func() bool { return client.IgnoreAlreadyExists(create(name)) == nil })
	}
	for _, opts := range [][]client.CreateOption{nil, {client.DryRunAll}} {
		eventually(t, "the budget is spent", func() bool {
			err := create("fifth", opts...)
			return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "budgets.ids") && strings.Contains(err.Error(), "at most 4")
		})
	}
}
