// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// An object stored before a rule existed must still take status and metadata: else its
// Pods could not get or give back addresses, and it could not be deleted.
func TestObjectOlderThanTheRules(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // it changes the definitions
	old := storeOldObject(t, env)

	t.Run("Status", func(t *testing.T) {
		old.Status.IPAM = &v1.IPAMStatus{V4: &v1.AddressBitmap{CIDR: "10.0.0.0/24", Pages: map[string]string{"0": "AQ=="}}}
		old.Status.Allocated = 1
		if err := env.Client.Status().Update(t.Context(), old); err != nil {
			t.Errorf("write status: %v", err)
		}
	})
	t.Run("Metadata", func(t *testing.T) {
		old.Finalizers = append(old.Finalizers, v1.InUseFinalizer)
		if err := env.Client.Update(t.Context(), old); err != nil {
			t.Errorf("set finalizer: %v", err)
		}
		old.Finalizers = nil
		if err := env.Client.Update(t.Context(), old); err != nil {
			t.Errorf("remove finalizer: %v", err)
		}
	})
	t.Run("ChangeElsewhere", func(t *testing.T) {
		changed := old.DeepCopy()
		changed.Spec.Options.VXLAN = 7 // what broke the rule may not be changed into other wrong
		if err := env.Client.Update(t.Context(), changed); !apierrors.IsInvalid(err) {
			t.Errorf("change the wrong spec: got %v, want a refusal", err)
		}
	})
	t.Run("Repair", func(t *testing.T) {
		old.Spec.Options.VXLAN = 0
		if err := env.Client.Update(t.Context(), old); err != nil {
			t.Errorf("repair: %v", err)
		}
	})
}

// storeOldObject stores a network on a VLAN and a VXLAN while no rule forbids it.
func storeOldObject(t *testing.T, env *apitest.Env) *v1.ClusterNetwork {
	t.Helper()
	const name = "clusternetworks.danm.io"
	var definition apiextensionsv1.CustomResourceDefinition
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: name}, &definition); err != nil {
		t.Fatal(err)
	}
	rules := definition.DeepCopy()
	dropRules(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err := env.Client.Update(t.Context(), &definition); err != nil {
		t.Fatal(err)
	}
	old := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("old")},
		Spec:       v1.NetworkSpec{NetworkID: "old", Options: v1.NetworkOptions{CIDR: "10.0.0.0/24", VLAN: 5, VXLAN: 6}},
	}
	eventually(t, "the API server forgets the rules", func() error {
		return env.Client.Create(t.Context(), old)
	})
	rules.ResourceVersion = definition.ResourceVersion
	if err := env.Client.Update(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	probe := &unstructured.Unstructured{}
	eventually(t, "the API server knows the rules again", func() error {
		*probe = *newNetwork(t, v1.KindClusterNetwork, `{Options: {vlan: 5, vxlan: 5}}`)
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); !apierrors.IsInvalid(err) {
			return errAccepted
		}
		return nil
	})
	return old
}

func dropRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, field := range schema.Properties {
		dropRules(&field)
		schema.Properties[name] = field
	}
}
