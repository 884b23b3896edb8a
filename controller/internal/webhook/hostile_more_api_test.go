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

// More ways to the same ends: by subresource, by annotation, by what belongs to others.
func TestHostileTenantByOtherWays(t *testing.T) {
	endpoint := func(w *world) *v1.DanmEp {
		return &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: apitest.Name("ep")},
			Spec: v1.DanmEpSpec{NetworkName: "own", APIType: v1.KindTenantNetwork, EndpointID: "e", CID: "c", Host: "n1", Pod: "p", Interface: v1.DanmEpInterface{Name: "eth1"}}}
	}
	runAttempts(t, map[string]attempt{
		"StatusPut": {reason: "The whole status.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			o := w.own.DeepCopy()
			o.Status.Allocated = 7
			return w.tenant.Status().Update(t.Context(), o)
		}},
		"StatusApply": {reason: "By server-side apply, with the spec along.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "own", `{spec: {NetworkID: x, Options: {vlan: 5}}, status: {allocated: 7}}`)
			return w.tenant.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("mallory"))
		}},
		"StatusOfOther": {reason: "The victim's addresses.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Status().Patch(t.Context(), w.victim.DeepCopy(), merge(`{"status": {"ipam": null}}`))
		}},
		"DryRunVLAN": {reason: "What is refused is refused in a dry run too.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), w.forged("dry"), client.DryRunAll)
		}},
		"Alpha": {reason: "A version of the same group that was never there.", refused: []string{"no matches", "not find"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "alpha", `{spec: {NetworkID: x, Options: {vlan: 5}}}`)
			u.SetAPIVersion("danm.io/v1alpha1")
			return w.tenant.Create(t.Context(), u)
		}},
		"LegacyGroup": {reason: "DANM 4.3's group.", refused: []string{"no matches", "not find"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "old", `{spec: {NetworkID: x, Options: {vlan: 5}}}`)
			u.SetAPIVersion("danm.k8s.io/v1")
			return w.tenant.Create(t.Context(), u)
		}},
		"TakeOver": {reason: "A bitmap of its own, in its own network.", refused: []string{v1.TakeOverAnnotation}, try: func(t *testing.T, w *world) error {
			t.Helper()
			tn := tenantNetwork(t, w.ns, "f", `{Options: {cidr: 10.0.0.0/24, alloc: gAAB}}`)
			tn.Annotations = map[string]string{v1.TakeOverAnnotation: "true"}
			return w.tenant.Create(t.Context(), tn)
		}},
		"TakeOverVLAN": {reason: "A take-over is refused before what it asks for is read.", refused: []string{v1.TakeOverAnnotation}, try: func(t *testing.T, w *world) error {
			t.Helper()
			f := w.forged("f")
			f.Annotations[v1.TakeOverAnnotation] = "true"
			return w.tenant.Create(t.Context(), f)
		}},
		"ForgedToken": {reason: "The victim's token at another place.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			_, token, _ := strings.Cut(w.victim.Annotations[v1.AssignedAnnotation], " ")
			tn := tenantNetwork(t, w.ns, "f", `{}`)
			tn.Annotations = map[string]string{v1.AssignedAnnotation: fmt.Sprintf("vlan/%s/109 %s", w.device, token)}
			return w.tenant.Create(t.Context(), tn)
		}},
		"DropAnnotation": {reason: "To be assigned once more.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/metadata/annotations/danm.io~1assigned"}]`)))
		}},
		"Rebuild": {reason: "Its own bitmap, as often as it likes.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/ipam-rebuild": "x", "danm.io/ipam-skip": "n1"}}}`))
		}},
		"RebuildOther": {reason: "The victim's.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.victim.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/ipam-skip": "n1"}}}`))
		}},
		"ReadOther": {reason: "What the victim was assigned.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Get(t.Context(), client.ObjectKeyFromObject(w.victim), &v1.TenantNetwork{})
		}},
		"ListAll": {reason: "All tenants' networks.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.List(t.Context(), &v1.TenantNetworkList{})
		}},
		"CreateThere": {reason: "In the victim's namespace.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.victimNS, "f", `{}`))
		}},
		"DanmEpChange": {reason: "Another Pod's address.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			ep := endpoint(w)
			if err := w.env.Client.Create(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
			return w.tenant.Patch(t.Context(), ep, merge(`{"spec": {"Interface": {"Address": "10.0.0.1/24"}}}`))
		}},
		"DanmEpDelete": {reason: "To take a network while a Pod is on it.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			ep := endpoint(w)
			if err := w.env.Client.Create(t.Context(), ep); err != nil {
				t.Fatal(err)
			}
			return w.tenant.Delete(t.Context(), ep)
		}},
		"PluginLater": {reason: "First ipvlan, then what root would execute.", refused: []string{"spec.NetworkType", "bridge"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"NetworkType": "bridge", "NetworkID": "10-containerd-net"}}`))
		}},
		"FileLater": {reason: "First a good name, then a path.", refused: []string{"spec.NetworkID"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"NetworkID": "../../root/.kube/config"}}`))
		}},
		"Mode": {reason: "An l3s slave switches all others on its parent: there is no such option.", refused: []string{"unknown field", "spec.Options.mode"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "f", `{spec: {NetworkID: x, Options: {mode: l3s}}}`)
			return w.tenant.Create(t.Context(), u, client.FieldValidation("Strict"))
		}},
		"ModeSilently": {reason: "Without a complaint it is not stored either.", harmless: true, try: func(t *testing.T, w *world) error {
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

// A tenant finds no way onto a VLAN that somebody else is on, nor to the name of
// somebody's NIC: it gets others, or nothing. A NetworkID that names a netadmin's link is in
// its way nowhere.
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
			t.Fatalf("network %d is on VLAN %d, and so is somebody else, or its link has the name of a NIC", i, vlan)
		}
		got[vlan] = true
	}
	if len(got) != 9 {
		t.Errorf("VLANs given: %v, want 9", got)
	}
}

// One tenant's NetworkID is no obstacle to another's, and tells nobody that it is there. On
// VLANs both have the same ID, on one NIC each.
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
		// Dry run or not, at once and when the controller has read the first one.
		for i, opts := range [][]client.CreateOption{{client.DryRunAll}, nil, {client.DryRunAll}} {
			tn := tenantNetwork(t, younger, "net"+strconv.Itoa(i), spec)
			if err := env.Client.Create(t.Context(), tn, opts...); err != nil || tn.Annotations[v1.AssignedAnnotation] == first.Annotations[v1.AssignedAnnotation] {
				t.Errorf("another tenant's NetworkID: %s %s, error %v", vniType, tn.Annotations[v1.AssignedAnnotation], err)
			}
		}
	}
}

// What one tenant's network makes of a NIC that both share, the other's must go with.
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
		"Backend": {"A MACVLAN on an IPVLAN's parent.", `{NetworkType: macvlan}`, []string{"parent cannot serve both", device, "on the same parent"}},
		"Pool":    {"The other's addresses.", `{Options: {cidr: 10.0.0.0/16}}`, []string{"pools overlap", "allocation_pool", "disjoint"}},
		"Beside":  {"Another range.", `{Options: {cidr: 10.9.0.0/24}}`, nil},
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
			t.Errorf("patch %s: let in, in the older network's way", patch)
		}
	}
}
