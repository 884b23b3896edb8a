// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A TenantConfig with an unreadable status affects only its own tenants, and can be corrected.
func TestUnreadableTenantConfig(t *testing.T) {
	t.Parallel() // it waits for the sweeper
	env := start(t)
	ns, otherNS := env.Namespace(t), env.Namespace(t)
	config, device := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	kept := tenantNetwork(t, ns, "kept", `{}`)
	if err := env.Client.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	offer(t, env, otherNS, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	tc := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: config}}
	page := fmt.Sprintf(`{"status": {"reservations": {"vlan/%s/1": "100 red/Bad 0123456789abcdef"}}}`, device)
	if err := env.Client.Status().Patch(t.Context(), tc, merge("%s", page)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := env.Client.Create(t.Context(), tenantNetwork(t, otherNS, fmt.Sprintf("net%d", i), `{}`)); err != nil {
			t.Errorf("another TenantConfig's tenant: %v", err)
		}
	}
	eventually(t, "nothing is given of it", func() bool {
		err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "net", `{}`), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no TenantConfig is for this namespace")
	})
	grow := fmt.Sprintf(`{"hostDevices": [{"name": %q, "vniType": "vlan", "vniRange": "100-120"}]}`, device)
	if err := env.Client.Patch(t.Context(), tc.DeepCopy(), merge("%s", grow)); err != nil {
		t.Errorf("change it: %v", err)
	}
	corrected := fmt.Sprintf(`{"status": {"reservations": {"vlan/%s/1": null}}}`, device)
	if err := env.Client.Status().Patch(t.Context(), tc.DeepCopy(), merge("%s", corrected)); err != nil {
		t.Fatal(err)
	}
	tn := tenantNetwork(t, ns, "net", `{}`)
	eventually(t, "the corrected TenantConfig assigns again", func() bool { return env.Client.Create(t.Context(), tn) == nil })
	if tn.Spec.Options.VLAN == kept.Spec.Options.VLAN {
		t.Errorf("a network got VLAN %d, which another one is on", tn.Spec.Options.VLAN)
	}
	forbiddenOnCreate(t, env, tc, kept)
}

// The annotation requests the adoption of the networks' assignments.
func forbiddenOnCreate(t *testing.T, env *apitest.Env, tc *v1.TenantConfig, kept *v1.TenantNetwork) {
	t.Helper()
	has := func() bool {
		return strings.Contains(strings.Join(reserved(t, env, tc.Name), ", "), kept.Namespace+"/"+kept.Name+" ")
	}
	if has() {
		t.Error("adopted without a request")
	}
	if err := env.Client.Patch(t.Context(), tc.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/take-over": "true"}}}`)); err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, 3*time.Minute, "it is reserved again", has)
}

// A namespace without a TenantConfig any more keeps the assignments of its networks, and may not
// choose plugins, which run as root.
func TestNamespaceLosesItsLabel(t *testing.T) {
	env := start(t)
	ns := env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}], networkIds: {flannel: flan, macvlan: shared}}`)
	plugin, own := tenantNetwork(t, ns, "plugin", `{NetworkType: flannel}`), tenantNetwork(t, ns, "own", `{NetworkID: mine}`)
	for _, tn := range []*v1.TenantNetwork{plugin, own} {
		if err := env.Client.Create(t.Context(), tn); err != nil {
			t.Fatal(err)
		}
	}
	if err := env.Client.Patch(t.Context(), own, merge(`{"spec": {"NetworkType": "macvlan", "NetworkID": "mine2"}}`)); err != nil || own.Spec.NetworkID != "shared" {
		t.Errorf("change to a type in networkIds: got %v, NetworkID %q, want shared", err, own.Spec.NetworkID)
	}
	tc := &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: config}}
	if err := env.Client.Patch(t.Context(), tc, merge(`{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "nobody"}}}`)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // at once, and when the change is known
		if err := env.Client.Patch(t.Context(), plugin, merge(`{"spec": {"NetworkID": "10-containerd-net", "Options": {"container_prefix": "a"}}}`)); err != nil {
			t.Fatal(err)
		}
		if plugin.Spec.NetworkID != "flan" {
			t.Fatalf("the tenant chose %q", plugin.Spec.NetworkID)
		}
		eventually(t, "the change is known", func() bool {
			return env.Client.Create(t.Context(), tenantNetwork(t, ns, "new", `{}`), client.DryRunAll) != nil
		})
	}
}
