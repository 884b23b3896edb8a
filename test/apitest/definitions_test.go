// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// That they install at all says that each rule compiles and is within its cost limit.
func TestDefinitionsAreServed(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		got := strings.Fields(env.Kubectl(t, "api-resources", "--api-group=danm.io", "-o", "name", "--categories=danm"))
		slices.Sort(got)
		want := []string{
			"clusternetworks.danm.io", "danmeps.danm.io", "danmnets.danm.io",
			"networkviews.danm.io", "nodenetworks.danm.io", "tenantconfigs.danm.io", "tenantnetworks.danm.io",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("resources of danm.io: -want +got\n%s", diff)
		}
	})
}

// The API server reports what it cannot understand of a schema in conditions only.
func TestDefinitionsHaveNoViolationConditions(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		var list apiextensionsv1.CustomResourceDefinitionList
		if err := env.Client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, d := range list.Items {
			for _, c := range d.Status.Conditions {
				good := c.Type == apiextensionsv1.Established || c.Type == apiextensionsv1.NamesAccepted
				if (c.Status == apiextensionsv1.ConditionTrue) != good {
					t.Errorf("%s: condition %s is %s: %s", d.Name, c.Type, c.Status, c.Message)
				}
			}
		}
	})
}

// Users of DANM know these names.
func TestShortNames(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	for _, name := range []string{"cn", "cnet", "tn", "tnet", "tc", "tconf", "dn", "dnet", "de", "dep", "danm"} {
		env.Kubectl(t, "get", name, "-A")
	}
}

// Every field is documented, for kubectl explain.
func TestExplain(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := env.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Items {
		for _, v := range d.Spec.Versions {
			checkDescribed(t, d.Spec.Names.Kind, *v.Schema.OpenAPIV3Schema)
		}
	}
}

func checkDescribed(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Description == "" && !strings.HasSuffix(path, ".metadata") {
		t.Errorf("%s has no description", path)
	}
	for name, field := range schema.Properties {
		checkDescribed(t, path+"."+name, field)
	}
	if schema.Items != nil {
		for name, field := range schema.Items.Schema.Properties {
			checkDescribed(t, path+"."+name, field)
		}
	}
}
