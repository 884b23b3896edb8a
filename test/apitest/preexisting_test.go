// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// preexisting is an object of a kind that was stored before a rule which it breaks.
type preexisting struct {
	object *unstructured.Unstructured
	// status, other and repair are merge patches: of the status, of the wrong part into
	// something else that is wrong, and into what is right.
	status, otherMetadata, repair string
	// unrelated is a merge patch of another part of the spec. Only policies accept it.
	unrelated string
}

// preexistingObjects has one of every kind that has rules; the other kinds have none.
func preexistingObjects(t *testing.T) map[string]preexisting {
	t.Helper()
	all := map[string]preexisting{"tenantconfigs.danm.io": {
		object:        newTenantConfig(t, `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "5-9"}, {name: "a b", vniType: vxlan, vniRange: "9-11"}], namespaceSelector: {matchLabels: {a: b}}}`),
		status:        `{"status": {"reservations": {"vxlan/ens4/0": "5 ns/a 0123456789abcdef"}}}`,
		otherMetadata: `{"hostDevices": [{"name": "c d", "vniType": "vxlan", "vniRange": "9-11"}]}`,
		repair:        `{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "5-9"}]}`,
	}}
	for name, kind := range map[string]string{
		"clusternetworks.danm.io": v1.KindClusterNetwork, "danmnets.danm.io": v1.KindDanmNet, "tenantnetworks.danm.io": v1.KindTenantNetwork,
	} {
		all[name] = preexisting{
			object:        newNetwork(t, kind, `{Options: {cidr: 10.0.0.0/24, vlan: 5, vxlan: 6}}`),
			status:        `{"status": {"allocated": 1, "ipam": {"v4": {"cidr": "10.0.0.0/24", "pages": {"0": "AQ=="}}}}}`,
			otherMetadata: `{"spec": {"Options": {"vxlan": 7}}}`,
			repair:        `{"spec": {"Options": {"vxlan": null}}}`,
		}
	}
	return all
}

// forbiddenByPolicy has objects that break no rule of a schema, only one of an admission policy.
func forbiddenByPolicy(t *testing.T) map[string]preexisting {
	t.Helper()
	const ready = `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
	const reserved = `{"status": {"reservations": {"vxlan/ens4/0": "5 ns/a 0123456789abcdef"}}}`
	all := map[string]preexisting{
		"Overlap": {
			object:        newTenantConfig(t, `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "5-9"}, {name: ens5, vniType: vxlan, vniRange: "9-11"}], namespaceSelector: {matchLabels: {a: b}}}`),
			status:        reserved,
			otherMetadata: `{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "5-10"}, {"name": "ens5", "vniType": "vxlan", "vniRange": "9-11"}]}`,
			repair:        `{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "5-9"}]}`,
		},
		"VXLANPool": {
			object:        newTenantConfig(t, `{hostDevices: [{name: a.b/c, vniType: vxlan, vniRange: "20-29"}], namespaceSelector: {matchLabels: {a: b}}}`),
			status:        reserved,
			unrelated:     `{"hostDevices": [{"name": "a.b/c", "vniType": "vxlan", "vniRange": "20-29"}, {"name": "ens4"}]}`,
			otherMetadata: `{"hostDevices": [{"name": "a.b/d", "vniType": "vxlan", "vniRange": "20-29"}]}`,
			repair:        `{"hostDevices": [{"name": "a.b/c", "vniType": "vlan", "vniRange": "20-29"}]}`,
		},
		"Bitmap": {
			object:        newTenantConfig(t, `{hostDevices: [{name: ens4, vniType: vlan, vniRange: "5-9", alloc: AQ==}], namespaceSelector: {matchLabels: {a: b}}}`),
			status:        reserved,
			unrelated:     `{"hostDevices": [{"name": "ens4", "vniType": "vlan", "vniRange": "5-12", "alloc": "AQ=="}]}`,
			otherMetadata: `{"hostDevices": [{"name": "ens4", "vniType": "vlan", "vniRange": "5-12", "alloc": "Ag=="}]}`,
			repair:        `{"hostDevices": [{"name": "ens4", "vniType": "vlan", "vniRange": "5-12"}]}`,
		},
	}
	for _, kind := range []string{v1.KindClusterNetwork, v1.KindDanmNet, v1.KindTenantNetwork} {
		all["Delegate/"+kind] = preexisting{
			object:        newNetwork(t, kind, `{NetworkType: flannel, Options: {cidr: 10.244.0.0/16, rt_tables: 100}}`),
			status:        ready,
			unrelated:     `{"spec": {"Options": {"container_prefix": "net"}}}`,
			otherMetadata: `{"spec": {"Options": {"cidr": "10.245.0.0/16"}}}`,
			repair:        `{"spec": {"Options": {"cidr": null}}}`,
		}
		all["MTU/"+kind] = preexisting{
			object:        newNetwork(t, kind, `{NetworkType: flannel, Options: {mtu: 1400}}`),
			status:        ready,
			unrelated:     `{"spec": {"Options": {"container_prefix": "net"}}}`,
			otherMetadata: `{"spec": {"Options": {"mtu": 1500}}}`,
			repair:        `{"spec": {"Options": {"mtu": null}}}`,
		}
		all["FunctionsVXLAN/"+kind] = preexisting{
			object:        newNetwork(t, kind, `{NetworkType: sriov, Options: {device_pool: a.b/c, vxlan: 5}}`),
			status:        ready,
			unrelated:     `{"spec": {"Options": {"container_prefix": "net"}}}`,
			otherMetadata: `{"spec": {"Options": {"vxlan": 6}}}`,
			repair:        `{"spec": {"Options": {"vxlan": null}}}`,
		}
		all["TakeOver/"+kind] = preexisting{
			object:        newNetwork(t, kind, `{Options: {cidr: 10.0.0.0/24, alloc: gAAB}}`),
			status:        ready,
			unrelated:     `{"spec": {"Options": {"alloc": "gACB"}}}`, // DANM records an address
			otherMetadata: `{"spec": {"Options": {"allocation_pool": {"lastIp": "10.0.0.9"}}}}`,
			repair:        `{"spec": {"Options": {"alloc": null}}}`,
		}
	}
	return all
}

// An object stored before a rule existed must still take status and metadata: else its
// Pods could not get or give back addresses, and it could not be deleted.
//
// Before Kubernetes 1.33 a write of status is checked against the whole schema, also
// where nothing changes (kubernetes/kubernetes#129503). So a rule that is added after a
// release belongs into a policy, which status writes do not pass at any version.
func TestObjectOlderThanTheRules(t *testing.T) {
	t.Parallel()
	for version, start := range map[string]func(testing.TB) *apitest.Env{"Current": apitest.New, "Oldest": apitest.NewOldest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			env := start(t) // it changes the definitions
			all, policies := preexistingObjects(t), forbiddenByPolicy(t)
			storePreexisting(t, env, all, policies)
			for name, o := range policies {
				t.Run("Policy/"+name, func(t *testing.T) {
					t.Parallel()
					checkPreexisting(t, env, o, true)
				})
			}
			for name, o := range all {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					checkPreexisting(t, env, o, version == "Current")
				})
			}
		})
	}
}

func checkPreexisting(t *testing.T, env *apitest.Env, o preexisting, statusToo bool) {
	t.Helper()
	patch := func(text string) error {
		return env.Client.Patch(t.Context(), o.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	err := env.Client.Status().Patch(t.Context(), o.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(o.status)))
	if err != nil && statusToo {
		t.Errorf("write status: %v", err)
	}
	for _, text := range []string{`{"metadata": {"finalizers": ["danm.io/in-use"]}}`, `{"metadata": {"finalizers": null, "labels": {"a": "b"}}}`} {
		if err := patch(text); err != nil {
			t.Errorf("write metadata: %v", err)
		}
	}
	if o.unrelated != "" {
		if err := patch(o.unrelated); err != nil {
			t.Errorf("change another part: %v", err)
		}
	}
	if err := patch(o.otherMetadata); !apierrors.IsInvalid(err) {
		t.Errorf("change the wrong part into other wrong: got %v, want a refusal", err)
	}
	if err := patch(o.repair); err != nil {
		t.Errorf("repair: %v", err)
	}
}

// storePreexisting stores the objects while no rule forbids them.
func storePreexisting(t *testing.T, env *apitest.Env, all, policies map[string]preexisting) {
	t.Helper()
	bindings := deletePolicyBindings(t, env)
	var probes []*unstructured.Unstructured
	for name, o := range policies {
		probes = append(probes, o.object.DeepCopy())
		eventually(t, "the API server forgets the policy of "+name, func() error {
			return env.Client.Create(t.Context(), o.object)
		})
	}
	for name, o := range all {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := env.Client.Get(t.Context(), client.ObjectKey{Name: name}, &definition); err != nil {
			t.Fatal(err)
		}
		rules := definition.DeepCopy()
		dropRules(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err := env.Client.Update(t.Context(), &definition); err != nil {
			t.Fatal(err)
		}
		bad := o.object.DeepCopy()
		eventually(t, "the API server forgets the rules of "+name, func() error {
			return env.Client.Create(t.Context(), o.object)
		})
		rules.ResourceVersion = definition.ResourceVersion
		if err := env.Client.Update(t.Context(), rules); err != nil {
			t.Fatal(err)
		}
		awaitRefusal(t, env, bad)
	}
	for i := range bindings {
		bindings[i].ResourceVersion = ""
		if err := env.Client.Create(t.Context(), &bindings[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, probe := range probes {
		awaitRefusal(t, env, probe)
	}
}

// deletePolicyBindings takes the admission policies out of force.
func deletePolicyBindings(t *testing.T, env *apitest.Env) []admissionv1.ValidatingAdmissionPolicyBinding {
	t.Helper()
	var list admissionv1.ValidatingAdmissionPolicyBindingList
	if err := env.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if err := env.Client.Delete(t.Context(), list.Items[i].DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	return list.Items
}

// awaitRefusal waits until the API server knows the rules again.
func awaitRefusal(t *testing.T, env *apitest.Env, bad *unstructured.Unstructured) {
	t.Helper()
	eventually(t, "the API server knows the rules again", func() error {
		probe := bad.DeepCopy()
		probe.SetName(apitest.Name("probe"))
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); !apierrors.IsInvalid(err) {
			return errAccepted
		}
		return nil
	})
}

func dropRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations, schema.Pattern = nil, ""
	if schema.Items != nil && schema.Items.Schema != nil {
		dropRules(schema.Items.Schema)
	}
	for name, field := range schema.Properties {
		dropRules(&field)
		schema.Properties[name] = field
	}
}
