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

// overlapping breaks no rule of the schema, only one of an admission policy.
func overlapping(t *testing.T) preexisting {
	t.Helper()
	return preexisting{
		object:        newTenantConfig(t, `{hostDevices: [{name: ens4, vniType: vxlan, vniRange: "5-9"}, {name: ens5, vniType: vxlan, vniRange: "9-11"}], namespaceSelector: {matchLabels: {a: b}}}`),
		status:        `{"status": {"reservations": {"vxlan/ens4/0": "5 ns/a 0123456789abcdef"}}}`,
		otherMetadata: `{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "5-10"}, {"name": "ens5", "vniType": "vxlan", "vniRange": "9-11"}]}`,
		repair:        `{"hostDevices": [{"name": "ens4", "vniType": "vxlan", "vniRange": "5-9"}]}`,
	}
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
			all, policy := preexistingObjects(t), overlapping(t)
			storePreexisting(t, env, all, policy)
			t.Run("Policy", func(t *testing.T) {
				t.Parallel()
				checkPreexisting(t, env, policy, true)
			})
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
	if err := patch(o.otherMetadata); !apierrors.IsInvalid(err) {
		t.Errorf("change the wrong part into other wrong: got %v, want a refusal", err)
	}
	if err := patch(o.repair); err != nil {
		t.Errorf("repair: %v", err)
	}
}

// storePreexisting stores the objects while no rule forbids them.
func storePreexisting(t *testing.T, env *apitest.Env, all map[string]preexisting, policy preexisting) {
	t.Helper()
	bindings, probe := deletePolicyBindings(t, env), policy.object.DeepCopy()
	eventually(t, "the API server forgets the policies", func() error {
		return env.Client.Create(t.Context(), policy.object)
	})
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
	awaitRefusal(t, env, probe)
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
