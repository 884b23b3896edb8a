// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// Further attacks: by subresource, by annotation, and by objects of others.
func TestHostileTenantByOtherWays(t *testing.T) {
	endpoint := func(w *world) *v1.DanmEp {
		return &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: apitest.Name("ep")},
			Spec: v1.DanmEpSpec{NetworkName: "own", APIType: v1.KindTenantNetwork, EndpointID: "e", CID: "c", Host: "n1", Pod: "p", Interface: v1.DanmEpInterface{Name: "eth1"}}}
	}
	runAttempts(t, map[string]attempt{
		"StatusPut": {reason: "The tenant replaces the whole status.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			o := w.own.DeepCopy()
			o.Status.Pools = []v1.PoolStatus{{Family: "IPv4", Capacity: 7, Free: 7}}
			return w.tenant.Status().Update(t.Context(), o)
		}},
		"StatusApply": {reason: "The tenant applies the status with the spec.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "own", `{spec: {NetworkID: x, Options: {vlan: 5}}, status: {allocated: 7}}`)
			return w.tenant.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("mallory"))
		}},
		"StatusOfOther": {reason: "The tenant writes the victim's addresses.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Status().Patch(t.Context(), w.victim.DeepCopy(), merge(`{"status": {"ipam": null}}`))
		}},
		"DryRunVLAN": {reason: "A dry run must be rejected like a creation.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), w.forged("dry"), client.DryRunAll)
		}},
		"Alpha": {reason: "The group never had this version.", refused: []string{"no matches", "not find"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "alpha", `{spec: {NetworkID: x, Options: {vlan: 5}}}`)
			u.SetAPIVersion("danm.io/v1alpha1")
			return w.tenant.Create(t.Context(), u)
		}},
		"LegacyGroup": {reason: "The group is that of DANM 4.3.", refused: []string{"no matches", "not find"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "old", `{spec: {NetworkID: x, Options: {vlan: 5}}}`)
			u.SetAPIVersion("danm.k8s.io/v1")
			return w.tenant.Create(t.Context(), u)
		}},
		"TakeOver": {reason: "The tenant brings a bitmap for its own network.", refused: []string{v1.TakeOverAnnotation}, try: func(t *testing.T, w *world) error {
			t.Helper()
			tn := tenantNetwork(t, w.ns, "f", `{Options: {cidr: 10.0.0.0/24, alloc: gAAB}}`)
			tn.Annotations = map[string]string{v1.TakeOverAnnotation: "true"}
			return w.tenant.Create(t.Context(), tn)
		}},
		"TakeOverVLAN": {reason: "A take-over is rejected before its request is read.", refused: []string{v1.TakeOverAnnotation}, try: func(t *testing.T, w *world) error {
			t.Helper()
			f := w.forged("f")
			f.Annotations[v1.TakeOverAnnotation] = "true"
			return w.tenant.Create(t.Context(), f)
		}},
		"ForgedToken": {reason: "The tenant uses the victim's token for another slot.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			_, token, _ := strings.Cut(w.victim.Annotations[v1.AssignedAnnotation], " ")
			tn := tenantNetwork(t, w.ns, "f", `{}`)
			tn.Annotations = map[string]string{v1.AssignedAnnotation: fmt.Sprintf("vlan/%s/109 %s", w.device, token)}
			return w.tenant.Create(t.Context(), tn)
		}},
		"DropAnnotation": {reason: "The tenant wants a second assignment.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/metadata/annotations/danm.io~1assigned"}]`)))
		}},
		"Rebuild": {reason: "The tenant requests rebuilds of its own bitmap in a loop.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/ipam-rebuild": "x", "danm.io/ipam-skip": "n1"}}}`))
		}},
		"RebuildOther": {reason: "The tenant requests a rebuild of the victim's bitmap.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.victim.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/ipam-skip": "n1"}}}`))
		}},
		"ReadOther": {reason: "The tenant reads the victim's assignment.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Get(t.Context(), client.ObjectKeyFromObject(w.victim), &v1.TenantNetwork{})
		}},
		"ListAll": {reason: "The tenant lists all tenants' networks.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.List(t.Context(), &v1.TenantNetworkList{})
		}},
		"CreateThere": {reason: "The tenant creates a network in the victim's namespace.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.victimNS, "f", `{}`))
		}},
		"DanmEpChange": {reason: "The tenant takes another Pod's address.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			ep := endpoint(w)
			if err := w.env.Client.Create(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
			return w.tenant.Patch(t.Context(), ep, merge(`{"spec": {"Interface": {"Address": "10.0.0.1/24"}}}`))
		}},
		"DanmEpDelete": {reason: "The tenant frees a network that a Pod uses.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			ep := endpoint(w)
			if err := w.env.Client.Create(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
			return w.tenant.Delete(t.Context(), ep)
		}},
		"PluginLater": {reason: "The tenant changes ipvlan into a plugin that would run as root.", refused: []string{"spec.NetworkType", "bridge"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"NetworkType": "bridge", "NetworkID": "10-containerd-net"}}`))
		}},
		"FileLater": {reason: "The tenant changes a valid name into a path.", refused: []string{"spec.NetworkID"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"NetworkID": "../../root/.kube/config"}}`))
		}},
		"Mode": {reason: "An l3s slave would switch all others on its parent, so there is no such option.", refused: []string{"unknown field", "spec.Options.mode"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "f", `{spec: {NetworkID: x, Options: {mode: l3s}}}`)
			return w.tenant.Create(t.Context(), u, client.FieldValidation("Strict"))
		}},
		"ModeSilently": {reason: "Without validation the option is dropped.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "f", `{spec: {NetworkID: "n`+w.ns[len(w.ns)-8:]+`", Options: {mode: l3s, passthru: true}}}`)
			if err := w.tenant.Create(t.Context(), u, client.FieldValidation("Ignore")); err != nil {
				return err
			}
			if options := fmt.Sprint(u.Object["spec"]); strings.Contains(options, "l3s") || strings.Contains(options, "passthru") {
				t.Errorf("stored: %s", options)
			}
			return nil
		}},
	})
}

// A tenant gets neither a VLAN that another network uses nor the name of another network's NIC, but
// others, or nothing. A NetworkID that equals the link of an administrator's network conflicts with
// it nowhere.
func TestTenantTakesNobodysLink(t *testing.T) {
	w := newWorld(t)
	const theirs, nic = 105, 107
	id := "c" + w.ns[len(w.ns)-8:]
	admins := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("cn")}, Spec: v1.NetworkSpec{
		NetworkID: id, Options: v1.NetworkOptions{Device: w.device, VLAN: theirs}}}
	elsewhere := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("cn")}, Spec: v1.NetworkSpec{
		NetworkID: id, Options: v1.NetworkOptions{Device: "x" + w.device, VLAN: theirs + 1}}}
	link := network.Network{Ref: network.Ref{Kind: v1.KindTenantNetwork}, Device: w.device, VLAN: nic}
	named := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("cn")}, Spec: v1.NetworkSpec{
		NetworkID: "nic", Options: v1.NetworkOptions{Device: link.LinkName()}}}
	for _, o := range []client.Object{admins, elsewhere, named} {
		if err := w.env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	got := map[int32]bool{w.own.Spec.Options.VLAN: true, w.victim.Spec.Options.VLAN: true}
	for i := 0; ; i++ {
		tn := tenantNetwork(t, w.ns, fmt.Sprintf("n%d", i), `{NetworkID: `+id+`}`)
		if err := w.tenant.Create(t.Context(), tn); err != nil {
			checkAnswer(t, "eleven IDs, and two are not to be had", err, []string{"every ID", "100-110"})
			break
		}
		vlan := tn.Spec.Options.VLAN
		if got[vlan] || vlan == theirs || vlan == nic {
			t.Fatalf("network %d is on VLAN %d, which another network uses, or its link has the name of a NIC", i, vlan)
		}
		got[vlan] = true
	}
	if len(got) != 9 {
		t.Errorf("VLANs given: %v, want 9", got)
	}
}

// One tenant's NetworkID neither blocks another tenant's nor reveals that it exists. Both have the
// same ID on VLANs of different NICs.
func TestLinkNamesOfTwoTenants(t *testing.T) {
	env := start(t)
	for vniType, devices := range map[string]string{
		"vxlan": `[{name: "%", vniType: vxlan, vniRange: "700-709"}]`,
		"vlan":  `[{name: "%a", vniType: vlan, vniRange: "7"}, {name: "%b", vniType: vlan, vniRange: "7"}, {name: "%c", vniType: vlan, vniRange: "7"}, {name: "%d", vniType: vlan, vniRange: "7"}]`,
	} {
		older, younger := env.Namespace(t), env.Namespace(t)
		_, device := offer(t, env, "", `{hostDevices: `+devices+`, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [`+older+`, `+younger+`]}]}}`)
		spec := `{NetworkID: v` + device[len(device)-8:] + `}`
		first := tenantNetwork(t, older, "net", spec)
		if err := env.Client.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		// The result is the same for a dry run, at once, and after the controller has read the
		// first one.
		for i, opts := range [][]client.CreateOption{{client.DryRunAll}, nil, {client.DryRunAll}} {
			tn := tenantNetwork(t, younger, "net"+strconv.Itoa(i), spec)
			if err := env.Client.Create(t.Context(), tn, opts...); err != nil || tn.Annotations[v1.AssignedAnnotation] == first.Annotations[v1.AssignedAnnotation] {
				t.Errorf("another tenant's NetworkID: %s %s, error %v", vniType, tn.Annotations[v1.AssignedAnnotation], err)
			}
		}
	}
}

// Networks of two tenants on one NIC must use it in the same way.
func TestSharedNICOfTwoTenants(t *testing.T) {
	env := start(t)
	older, younger := env.Namespace(t), env.Namespace(t)
	_, device := offer(t, env, "", `{hostDevices: [{name: "%"}], namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [`+older+`, `+younger+`]}]}}`)
	first := tenantNetwork(t, older, "net", `{Options: {cidr: 10.0.0.0/24}}`)
	if err := env.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, spec string
		refused      []string
	}{
		"Backend": {"MACVLAN and IPVLAN cannot share a parent.", `{NetworkType: macvlan}`, []string{"must be ipvlan", device, "on the same parent"}},
		"Pool":    {"The other network allocates these addresses.", `{Options: {cidr: 10.0.0.0/16}}`, []string{"must not overlap", "allocation_pool", "disjoint"}},
		"Beside":  {"The range is another one.", `{Options: {cidr: 10.9.0.0/24}}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]client.CreateOption{{client.DryRunAll}, nil} {
				err := env.Client.Create(t.Context(), tenantNetwork(t, younger, strings.ToLower(name), tc.spec), opts...)
				checkAnswer(t, tc.reason, err, tc.refused)
				if err != nil && strings.Contains(err.Error(), older) {
					t.Errorf("%s: the refusal names the other tenant: %v", tc.reason, err)
				}
			}
		})
	}
	for _, patch := range []string{`{"spec": {"NetworkType": "macvlan"}}`, `{"spec": {"Options": {"cidr": "10.0.0.128/25"}}}`} {
		tn := tenantNetwork(t, younger, "beside", `{}`)
		if err := env.Client.Patch(t.Context(), tn, merge("%s", patch)); err == nil {
			t.Errorf("patch %s: admitted in conflict with the older network", patch)
		}
	}
}
