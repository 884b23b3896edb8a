// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A tenant whose Pods are attached cannot remove the finalizer from its network, and so cannot
// delete it: its VLAN stays reserved. Once the Pods are gone, both work.
func TestTenantKeepsWhatIsInUse(t *testing.T) {
	t.Parallel()
	env := start(t)
	ns := env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	tenant, daemon := tenantClient(t, env, ns), env.As(t, apitest.NodeDaemon("node-1"))
	own := tenantNetwork(t, ns, "own", `{}`)
	eventually(t, "the tenant has its rights", func() bool {
		return tenant.Create(t.Context(), own.DeepCopy(), client.DryRunAll) == nil
	})
	if err := tenant.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(daemon, `{"metadata": {"finalizers": ["danm.io/in-use"]}}`); err != nil {
		t.Fatal(err)
	}
	ep := &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ep"}, Spec: v1.DanmEpSpec{
		NetworkName: "own", APIType: v1.KindTenantNetwork, NetworkUID: string(own.UID), EndpointID: "e", Host: "node-1", HostUID: "node-1-uid", Pod: "p", CID: "c",
		Interface: v1.DanmEpInterface{Name: "eth1"},
	}}
	createPod(t, env, ns, "p")
	if err := daemon.Create(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	const says = "metadata.finalizers must keep danm.io/in-use"
	checkAnswer(t, "strip it", patch(tenant, `{"metadata": {"finalizers": null}}`), []string{says, "delete the Pods"})
	replaced := tenantNetwork(t, ns, "own", `{}`)
	replaced.Spec, replaced.Annotations = own.Spec, own.Annotations
	replaced.ResourceVersion = latest(t, env, own).ResourceVersion
	checkAnswer(t, "replace it", tenant.Update(t.Context(), replaced), []string{says})
	checkAnswer(t, "delete it", tenant.Delete(t.Context(), own.DeepCopy()), []string{ns + "/p"})
	if got := reserved(t, env, config); len(got) != 1 {
		t.Errorf("reserved: got %v, want what the tenant has", got)
	}
	if err := daemon.Delete(t.Context(), ep); err != nil {
		t.Fatal(err)
	}
	if err := tenant.Delete(t.Context(), own.DeepCopy()); err != nil {
		t.Fatalf("delete it without Pods: %v", err)
	}
	checkAnswer(t, "strip it while it goes", patch(tenant, `{"metadata": {"finalizers": null}}`), []string{says})
	if err := patch(daemon, `{"metadata": {"finalizers": null}}`); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("strip it as a node: got %v, want a refusal", err)
	}
	if err := patch(env.As(t, apitest.Controller()), `{"metadata": {"finalizers": null}}`); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(own), own); !apierrors.IsNotFound(err) {
		t.Errorf("afterwards: got %v, want it gone", err)
	}
	eventually(t, "the VLAN is free", func() bool { return len(reserved(t, env, config)) == 0 })
}

// kubectl prints the reason.
func TestReplaceWithoutTheFinalizer(t *testing.T) {
	t.Parallel()
	env := start(t)
	name := apitest.Name("net")
	manifest := strings.NewReplacer("NAME", name, "UNIQUE", name[len(name)-8:]).Replace(
		`{"apiVersion": "danm.io/v1", "kind": "ClusterNetwork", "metadata": {"name": "NAME"}, "spec": {"NetworkID": "UNIQUE"}}`)
	cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1.InUseFinalizer}}}
	cn.Spec.NetworkID = name[len(name)-8:]
	if err := env.Client.Create(t.Context(), cn); err != nil {
		t.Fatal(err)
	}
	// The user is in no group with all rights, and has the rights of a tenant.
	const user = "replacing-netadmin"
	env.Kubectl(t, "create", "clusterrolebinding", name, "--clusterrole=patchbay-netadmin", "--user="+user)
	var out string
	eventually(t, "the policy rejects kubectl replace", func() bool {
		out, _ = kubectl(t, env, manifest, "replace", "-f", "-", "--as="+user)
		return !strings.Contains(out, "Forbidden")
	})
	if !strings.Contains(out, "metadata.finalizers must keep danm.io/in-use") {
		t.Errorf("kubectl replace: got %q", out)
	}
	if out, err := kubectl(t, env, manifest, "apply", "-f", "-", "--as="+user); err != nil {
		t.Errorf("kubectl apply, which takes nothing off: %v\n%s", err, out)
	}
}

func latest(t *testing.T, env *apitest.Env, tn *v1.TenantNetwork) *v1.TenantNetwork {
	t.Helper()
	now := &v1.TenantNetwork{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(tn), now); err != nil {
		t.Fatal(err)
	}
	return now
}
