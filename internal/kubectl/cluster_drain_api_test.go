// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A person of the role patchbay-infrastructure drains, cordons and uncordons a cluster.
func TestDrainVerbs(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	if err := hub.Install(t.Context(), env.Config); err != nil {
		t.Fatal(err)
	}
	c, _, err := adminFactory(env).placementClient()
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
	cluster.Name = "drained"
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := Run(t.Context(), append(args, "--kubeconfig="+env.ControlPlane.AdminKubeconfig(),
			"--as=ops", "--as-group=system:authenticated", "--as-group=ops"), &out, &out)
		return out.String(), err
	}
	spec := func() v1alpha1.ClusterSpec {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		return cluster.Spec
	}
	if _, err := do("cluster", "drain", "drained", "--wait=false"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Fatalf("drain without rights: %v", err)
	}
	if err := env.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "drain-verbs-ops"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-infrastructure"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "ops"}},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := do("cluster", "cordon", "drained")
	for deadline := time.Now().Add(time.Minute); err != nil && strings.Contains(err.Error(), "forbidden") && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // the API server has not seen the binding yet
		out, err = do("cluster", "cordon", "drained")
	}
	if err != nil || out != "drained is cordoned\n" || !spec().Unschedulable {
		t.Fatalf("cordon: %q, %v, %+v", out, err, spec())
	}
	out, err = do("cluster", "drain", "drained", "--wait=false", "--max-moves=3", "--deadline=30m", "--on-deadline=Proceed")
	if err != nil || out != "drained is being drained\n" {
		t.Fatalf("drain: %q, %v", out, err)
	}
	d := spec().Drain
	if d == nil || d.Mode != v1alpha1.DrainMove || d.MaxConcurrentMoves != 3 || d.OnDeadline != v1alpha1.DeadlineProceed || time.Until(d.Deadline.Time) < 20*time.Minute {
		t.Errorf("drain: got %+v", d)
	}
	if _, err := do("cluster", "uncordon", "drained"); err == nil || !strings.Contains(err.Error(), "use --end-drain") || !spec().Unschedulable {
		t.Errorf("uncordon during a drain: %v, %+v", err, spec())
	}
	_, err = do("cluster", "drain", "drained", "--timeout=1s")
	if err == nil || !strings.Contains(err.Error(), "drained is not drained after 1s") {
		t.Errorf("drain without a hub: %v", err)
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDrained, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDrained, ObservedGeneration: cluster.Generation,
	})
	cluster.Status.Drain = &v1alpha1.DrainStatus{StartTime: metav1.Now(), Total: 2}
	if err := c.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if out, err := do("cluster", "drain", "drained"); err != nil || out != "0 of 2 left, 0 moving\ndrained is drained\n" {
		t.Errorf("drain to the end: %q, %v", out, err)
	}
	if out, err := do("cluster", "uncordon", "drained", "--end-drain"); err != nil || out != "drained is uncordoned\n" || spec().Unschedulable || spec().Drain != nil {
		t.Errorf("uncordon: %q, %v, %+v", out, err, spec())
	}
	if _, err := do("cluster", "cordon", "missing"); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("cordon of no Cluster: %v", err)
	}
}
