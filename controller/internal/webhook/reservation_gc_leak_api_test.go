// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/internal/tenant"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// tenantNetworks is the rule for their creation.
func tenantNetworks() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
		APIGroups: []string{"danm.io"}, APIVersions: []string{"v1"}, Resources: []string{"tenantnetworks"},
	}}
}

// refuseLater installs a policy that rejects networks with a label, after our webhook has reserved
// for them.
func refuseLater(t *testing.T, env *apitest.Env) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "later"}
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: tenantNetworks()}}},
			Validations:      []admissionv1.Validation{{Expression: "!has(object.metadata.labels)", Message: "no labels here"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// hang installs a validating webhook that takes requests and never answers.
func hang(t *testing.T, env *apitest.Env) (end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	url := fmt.Sprintf("https://%s/", l.Addr())
	none, fail := admissionv1.SideEffectClassNone, admissionv1.Fail
	slow := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "slow.example.com", AdmissionReviewVersions: []string{"v1"}, Rules: []admissionv1.RuleWithOperations{tenantNetworks()},
		ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, FailurePolicy: &fail,
	}}}
	if err := env.Client.Create(t.Context(), slow); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := env.Client.Delete(t.Context(), slow); err != nil {
			t.Fatal(err)
		}
	}
}

// When a creation fails after its reservation, by another policy's rejection or because the API
// server is killed, nothing stays reserved; and every assignment of a stored network stays
// reserved.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	env := apitest.New(t)
	stop, err := admissiontest.Serve(t.Context(), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ns := env.Namespace(t)
	config, _ := offer(t, env, ns, `{hostDevices: [{name: "%", vniType: vlan, vniRange: "100-119"}]}`)
	kept := tenantNetwork(t, ns, "kept", `{}`)
	if err := env.Client.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	refuseLater(t, env)
	labelled := func(name string) *v1.TenantNetwork {
		tn := tenantNetwork(t, ns, name, `{}`)
		tn.Labels = map[string]string{"a": "b"}
		return tn
	}
	eventually(t, "the policy is in force", func() bool {
		return apierrors.IsInvalid(env.Client.Create(t.Context(), labelled("probe"), client.DryRunAll))
	})
	checkReserved(t, env, config, 1)
	checkAnswer(t, "Another policy rejects the network.", env.Client.Create(t.Context(), labelled("late")), []string{"no labels here"})
	if got := len(reserved(t, env, config)); got != 2 {
		t.Errorf("%d reservations after a creation that failed, want 2 for now", got)
	}
	died(t, env, ns, config)
	begin := time.Now()
	eventuallyWithin(t, 2*tenant.GracePeriod+time.Minute, "the reservation without a network is released", func() bool { return len(reserved(t, env, config)) == 1 })
	t.Logf("free %v after the API server was back", time.Since(begin).Round(time.Second))
	next := tenantNetwork(t, ns, "next", `{}`)
	if err := env.Client.Create(t.Context(), next); err != nil || next.Spec.Options.VLAN == kept.Spec.Options.VLAN {
		t.Errorf("create: %v, VLAN %d beside %d", err, next.Spec.Options.VLAN, kept.Spec.Options.VLAN)
	}
}

// died kills the API server between a reservation and the creation.
func died(t *testing.T, env *apitest.Env, ns, config string) {
	t.Helper()
	end := hang(t, env)
	before := len(reserved(t, env, config))
	done := make(chan error, 1)
	go func() { done <- env.Client.Create(t.Context(), tenantNetwork(t, ns, "dying", `{}`)) }()
	eventually(t, "it is reserved for", func() bool { return len(reserved(t, env, config)) > before })
	if err := env.ControlPlane.Kill(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Log("the creation was faster than the death of the API server")
	}
	if err := env.ControlPlane.StartPart(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	end()
	eventually(t, "the network that never came is not there", func() bool {
		tn := tenantNetwork(t, ns, "dying", `{}`)
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(tn), tn)
		if err == nil {
			err = env.Client.Delete(t.Context(), tn)
		}
		return apierrors.IsNotFound(err)
	})
}
