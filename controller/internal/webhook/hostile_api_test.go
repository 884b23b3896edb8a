// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// world is a tenant with a token for its own namespace, and a victim.
type world struct {
	env            *apitest.Env
	ns, victimNS   string
	tenant         client.WithWatch
	config, device string
	own, victim    *v1.TenantNetwork
}

// newWorld creates one network in each of the two namespaces, from one TenantConfig.
func newWorld(t *testing.T) *world {
	t.Helper()
	env := start(t)
	w := &world{env: env, ns: env.Namespace(t), victimNS: env.Namespace(t)}
	w.tenant = tenantClient(t, env, w.ns)
	config := object(t, "TenantConfig", "", apitest.Name("tc"), "{}")
	w.config = config.GetName()
	w.device = "d" + w.config[len(w.config)-8:]
	config.Object["hostDevices"] = []any{map[string]any{"name": w.device, "vniType": "vlan", "vniRange": "100-110"}}
	config.Object["namespaceSelector"] = map[string]any{"matchExpressions": []any{map[string]any{
		"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{w.ns, w.victimNS},
	}}}
	if err := env.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.victim, w.own = tenantNetwork(t, w.victimNS, "victim", `{}`), tenantNetwork(t, w.ns, "own", `{}`)
	if err := env.Client.Create(t.Context(), w.victim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tenant has its rights", func() bool {
		return w.tenant.Create(t.Context(), w.own.DeepCopy(), client.DryRunAll) == nil
	})
	if err := w.tenant.Create(t.Context(), w.own); err != nil {
		t.Fatal(err)
	}
	return w
}

// tenantClient returns a client with the token of an account that has a tenant's rights in its
// namespace.
func tenantClient(t *testing.T, env *apitest.Env, ns string) client.WithWatch {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mallory"}}
	bind := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-tenant"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: account.Name}},
	}
	for _, o := range []client.Object{account, bind} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = token.Status.Token
	c, err := client.NewWithWatch(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// attempt is one attack of a tenant.
type attempt struct {
	reason string
	try    func(t *testing.T, w *world) error
	// harmless attacks may be admitted, as long as nothing of the victim changes.
	harmless bool
	// refused are texts of which the error must contain one.
	refused []string
}

// forged returns a TenantNetwork that claims the victim's assignment.
func (w *world) forged(name string) *v1.TenantNetwork {
	f := &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Annotations: map[string]string{
		v1.AssignedAnnotation: w.victim.Annotations[v1.AssignedAnnotation],
	}}}
	f.Spec = *w.victim.Spec.DeepCopy()
	f.Spec.NetworkID = "x" + w.ns[len(w.ns)-8:]
	return f
}

// Every attack of a tenant with its token is rejected, or harms only the tenant itself.
func TestHostileTenant(t *testing.T) {
	runAttempts(t, map[string]attempt{
		"CreateVLAN": {reason: "The tenant requests the victim's VLAN.", refused: []string{"spec.Options.vlan", "leave it out"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), w.forged("f"))
		}},
		"ForgedAnnotation": {reason: "The tenant forges an assignment.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			f := w.forged("f")
			f.Spec.Options = v1.NetworkOptions{}
			return w.tenant.Create(t.Context(), f)
		}},
		"ForeignDevice": {reason: "The tenant requests the management NIC.", refused: []string{"spec.Options.host_device", "eth0"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			f := w.forged("f")
			f.Spec.Options = v1.NetworkOptions{Device: "eth0"}
			return w.tenant.Create(t.Context(), f)
		}},
		"BadName": {reason: "The API server rejects the name only after admission, and the status would become unreadable.", refused: []string{"metadata.name"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "Bad", `{}`))
		}},
		"InjectedName": {reason: "The name reads as two reservations.", refused: []string{"metadata.name"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "x 0123456789abcdef, 105 "+w.ns+"/y", `{}`))
		}},
		"BadPrefix": {reason: "The generateName gives an invalid name.", refused: []string{"metadata.generateName", "X_"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			tn := tenantNetwork(t, w.ns, "", `{}`)
			tn.GenerateName = "X_"
			return w.tenant.Create(t.Context(), tn)
		}},
		"BadLabel": {reason: "A rejection after the reservation would withhold an ID for a minute, any number of times.", refused: []string{"metadata.labels", "a b"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			tn := tenantNetwork(t, w.ns, "f", `{}`)
			tn.Labels = map[string]string{"a b": "c"}
			return w.tenant.Create(t.Context(), tn)
		}},
		"LongPrefix": {reason: "The API server cuts the prefix, and so must the reservation.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			tn := tenantNetwork(t, w.ns, "", `{}`)
			tn.GenerateName = strings.Repeat("a", 200)
			return w.tenant.Create(t.Context(), tn)
		}},
		"PatchVLAN": {reason: "The tenant changes the VLAN by merge patch.", refused: []string{"spec.Options.vlan", "never changes"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"Options": {"vlan": %d}}}`, w.victim.Spec.Options.VLAN))
		}},
		"JSONPatch": {reason: "The tenant changes the VLAN and the annotation by JSON patch.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			p := fmt.Sprintf(`[{"op": "replace", "path": "/metadata/annotations/danm.io~1assigned", "value": %q},
				{"op": "replace", "path": "/spec/Options/vlan", "value": %d}]`, w.victim.Annotations[v1.AssignedAnnotation], w.victim.Spec.Options.VLAN)
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(p)))
		}},
		"Update": {reason: "The tenant changes the VLAN by PUT.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			o := w.own.DeepCopy()
			o.Spec.Options.VLAN = w.victim.Spec.Options.VLAN
			o.Annotations[v1.AssignedAnnotation] = w.victim.Annotations[v1.AssignedAnnotation]
			return w.tenant.Update(t.Context(), o)
		}},
		"AnnotationOnly": {reason: "The tenant changes the annotation first and the VLAN later.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"metadata": {"annotations": {"danm.io/assigned": %q}}}`, w.victim.Annotations[v1.AssignedAnnotation]))
		}},
		"DropVLAN": {reason: "The untagged NIC would receive all VLANs.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Patch(t.Context(), w.own.DeepCopy(), merge(`{"spec": {"Options": {"vlan": null}}, "metadata": {"annotations": null}}`))
		}},
		"Apply": {reason: "The tenant changes the VLAN by server-side apply with force.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "own", fmt.Sprintf(`{spec: {NetworkID: %s, Options: {vlan: %d}}}`, w.own.Spec.NetworkID, w.victim.Spec.Options.VLAN))
			return w.tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("mallory"))
		}},
		"ApplyNew": {reason: "Server-side apply creates objects too.", refused: []string{"spec.Options.vlan"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "new", fmt.Sprintf(`{spec: {NetworkID: x, Options: {vlan: %d}}}`, w.victim.Spec.Options.VLAN))
			return w.tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("mallory"))
		}},
		"Status": {reason: "The status contains the addresses in use.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Status().Patch(t.Context(), w.own.DeepCopy(), merge(`{"status": {"ipam": {"held": {"n1": {"uid": "u", "seq": 1}}}}}`))
		}},
		"StatusAlong": {reason: "A status in a PUT of the spec is dropped.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			o := w.own.DeepCopy()
			o.Status.Pools = []v1.PoolStatus{{Family: "IPv4", Capacity: 7, Free: 7}}
			o.Labels = map[string]string{"a": "b"}
			return w.tenant.Update(t.Context(), o)
		}},
		"OtherVersion": {reason: "The version has no webhooks.", refused: []string{"no matches", "not find", "v2"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			u := object(t, v1.KindTenantNetwork, w.ns, "v2", `{spec: {NetworkID: x, Options: {vlan: 5}}}`)
			u.SetAPIVersion("danm.io/v2")
			return w.tenant.Create(t.Context(), u)
		}},
		"DryRun": {reason: "A dry run must neither reveal what is free nor reserve.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			for i := range 30 {
				if err := w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, fmt.Sprintf("dry%d", i), `{}`), client.DryRunAll); err != nil {
					return err
				}
			}
			return nil
		}},
		"Plugin": {reason: "The plugin would run as root.", refused: []string{"spec.NetworkType", "bridge"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "f", `{NetworkType: bridge}`))
		}},
		"Program": {reason: "The type is a path to a program.", refused: []string{"spec.NetworkType"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "f", `{NetworkType: ../../bin/sh}`))
		}},
		"File": {reason: "The NetworkID is a path to a file.", refused: []string{"spec.NetworkID"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "f", `{NetworkID: ../../../etc/shadow}`))
		}},
		"LinkName": {reason: "NetworkID and VLAN give the name of a NIC.", harmless: true, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), tenantNetwork(t, w.ns, "f", `{NetworkID: `+w.victim.Spec.NetworkID+`}`))
		}},
		"DanmNet": {reason: "A DanmNet may have any attribute.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "f"}, Spec: *w.victim.Spec.DeepCopy()})
		}},
		"ClusterNetwork": {reason: "ClusterNetworks belong to administrators.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("f")}, Spec: *w.victim.Spec.DeepCopy()})
		}},
		"ReadConfig": {reason: "TenantConfigs name the other tenants and their tokens.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Get(t.Context(), client.ObjectKey{Name: w.config}, &v1.TenantConfig{})
		}},
		"WriteConfig": {reason: "TenantConfigs belong to administrators.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Status().Patch(t.Context(), &v1.TenantConfig{ObjectMeta: metav1.ObjectMeta{Name: w.config}}, merge(`{"status": {"reservations": null}}`))
		}},
		"OtherNamespace": {reason: "The tenant changes the victim's own network.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Delete(t.Context(), w.victim.DeepCopy())
		}},
		"ForgeDanmEp": {reason: "A DanmEp would keep a network or an address.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), &v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "f"}, Spec: v1.DanmEpSpec{NetworkName: "victim", Host: "n1"}})
		}},
		"Nodes": {reason: "NodeNetworks contain the ends of VXLANs.", refused: []string{"forbidden"}, try: func(t *testing.T, w *world) error {
			t.Helper()
			return w.tenant.Create(t.Context(), &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("n")}})
		}},
		"Pod": {reason: "The tenant creates a Pod on the victim's network.", refused: []string{"[0].tenantNetwork", w404}, try: func(t *testing.T, w *world) error {
			t.Helper()
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "p", Annotations: map[string]string{v1.InterfacesAnnotation: `[{"tenantNetwork": "` + w.victimNS + `/victim"}]`}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}, AutomountServiceAccountToken: new(bool)},
			}
			var err error
			eventually(t, "the Pod's account is there", func() bool {
				err = w.env.Client.Create(t.Context(), pod.DeepCopy()) // with the right to create Pods
				return err == nil || !strings.Contains(err.Error(), "serviceaccount")
			})
			return err
		}},
	})
}

func merge(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

func runAttempts(t *testing.T, cases map[string]attempt) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			err := tc.try(t, w)
			if !tc.harmless && err == nil || tc.harmless && err != nil {
				t.Errorf("%s\ngot %v, want it admitted: %v", tc.reason, err, tc.harmless)
			}
			found := err == nil
			for _, part := range tc.refused {
				found = found || strings.Contains(err.Error(), part)
			}
			if !found {
				t.Errorf("%s\ngot %v, want one of %q in it", tc.reason, err, tc.refused)
			}
			w.check(t)
		})
	}
}

// w404 is a part of the message about an unknown network.
const w404 = "RFC 1123"

// check checks that the victim was not harmed.
func (w *world) check(t *testing.T) {
	t.Helper()
	victim := &v1.TenantNetwork{}
	if err := w.env.Client.Get(t.Context(), client.ObjectKeyFromObject(w.victim), victim); err != nil {
		t.Fatal(err)
	}
	if attributes(victim) != attributes(w.victim) || victim.Annotations[v1.AssignedAnnotation] != w.victim.Annotations[v1.AssignedAnnotation] {
		t.Errorf("the victim has %s, %v", attributes(victim), victim.Annotations)
	}
	list := &v1.TenantNetworkList{}
	if err := w.env.Client.List(t.Context(), list, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		tn := &list.Items[i]
		o := tn.Spec.Options
		if o.Device != w.device || o.VLAN == 0 || o.VLAN == victim.Spec.Options.VLAN {
			t.Errorf("%s is on %s, the victim on VLAN %d", tn.Name, attributes(tn), victim.Spec.Options.VLAN)
		}
		if tn.Annotations[v1.AssignedAnnotation] == victim.Annotations[v1.AssignedAnnotation] || len(tn.Status.Pools) != 0 {
			t.Errorf("%s was assigned %v, pools %v", tn.Name, tn.Annotations, tn.Status.Pools)
		}
	}
	if got := reserved(t, w.env, w.config); len(got) != len(list.Items)+1 {
		t.Errorf("%d networks and %d reservations: %v", len(list.Items)+1, len(got), got)
	}
}

// Without running webhooks a tenant gets nothing, and neither a Pod nor a label waits for them.
func TestAway(t *testing.T) {
	env := apitest.New(t)
	stop, err := admissiontest.Serve(t.Context(), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-110"}]}`)
	tn := tenantNetwork(t, ns, "net", `{}`)
	if err := env.Client.Create(t.Context(), tn); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := env.Client.Create(t.Context(), tenantNetwork(t, ns, "new", `{}`)); !apierrors.IsInternalError(err) {
		t.Errorf("create a network: got %v, want a refusal", err)
	}
	patch := func(text string) error {
		return env.Client.Patch(t.Context(), tn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	for _, text := range []string{`{"spec": {"Options": {"vlan": 101}}}`, `{"metadata": {"annotations": {"danm.io/assigned": "x"}}}`} {
		if err := patch(text); err == nil {
			t.Errorf("patch %s: admitted", text)
		}
	}
	for _, text := range []string{`{"metadata": {"labels": {"a": "b"}}}`, `{"metadata": {"finalizers": ["danm.io/in-use"]}}`, `{"metadata": {"finalizers": null}}`} {
		if err := patch(text); err != nil {
			t.Errorf("patch %s: %v", text, err)
		}
	}
	for name, annotations := range map[string]map[string]string{"plain": nil, "annotated": {v1.InterfacesAnnotation: `[{"tenantNetwork": "net"}]`}} {
		pod := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "a", "image": "b"}}, "automountServiceAccountToken": false}}}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetNamespace(ns)
		pod.SetName(name)
		pod.SetAnnotations(annotations)
		eventually(t, "Pod "+name+" is admitted", func() bool { return env.Client.Create(t.Context(), pod.DeepCopy()) == nil })
	}
	// The webhook cannot read whether DANM's Pods use the network.
	if err := env.Client.Delete(t.Context(), tn); !apierrors.IsInternalError(err) {
		t.Errorf("delete a network: got %v, want a refusal", err)
	}
	config := &v1.TenantConfigList{}
	if err := env.Client.List(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, "a TenantConfig that is drawn from, by the policy alone",
		env.Client.Delete(t.Context(), &config.Items[0]), []string{config.Items[0].Name})
}
