// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// call runs the plugin as the admin and returns its output.
func call(t *testing.T, env *apitest.Env, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := Run(ctx, append(args, "--kubeconfig="+env.ControlPlane.AdminKubeconfig()), &out, &out)
	return out.String(), err
}

// danmNet creates a network, in recovery or not.
func danmNet(t *testing.T, env *apitest.Env, namespace string, recovering bool) *v1.DanmNet {
	t.Helper()
	n := &v1.DanmNet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apitest.Name("net")},
		Spec:       v1.NetworkSpec{NetworkID: "lan", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", CIDR: "10.9.0.0/24"}},
	}
	if err := env.Client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if recovering {
		n.Status.IPAM = &v1.IPAMStatus{Recovering: &v1.RecoveryStatus{StartTime: metav1.NowMicro()}}
		if err := env.Client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// annotation reads an annotation of a network.
func annotation(ctx context.Context, t *testing.T, env *apitest.Env, n *v1.DanmNet, name string) string {
	t.Helper()
	fresh := &v1.DanmNet{}
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(n), fresh); err != nil {
		t.Error(err)
	}
	return fresh.Annotations[name]
}

// report creates an Event as the controller does.
func report(ctx context.Context, t *testing.T, env *apitest.Env, n *v1.DanmNet, kind, reason, message string) {
	t.Helper()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: n.Namespace, Name: apitest.Name("event")},
		InvolvedObject: corev1.ObjectReference{APIVersion: "danm.io/v1", Kind: "DanmNet", Namespace: n.Namespace, Name: n.Name, UID: n.UID},
		Type:           kind, Reason: reason, Message: message, Count: 1,
	}
	if err := env.Client.Create(ctx, e); err != nil {
		t.Error(err)
	}
}

func TestRebuildWaitsAndPrintsTheEvent(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	n := danmNet(t, env, env.Namespace(t), false)
	report(t.Context(), t, env, n, corev1.EventTypeNormal, v1.ReasonBitmapRebuilt, "of an earlier request")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() { // patchbay-controller
		defer close(done)
		for annotation(ctx, t, env, n, v1.RebuildAnnotation) == "" && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		report(ctx, t, env, n, corev1.EventTypeNormal, v1.ReasonBitmapRebuilt, "7 freed")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1.RebuildAnnotation+`":null}}}`))
		if err := env.Client.Patch(ctx, n.DeepCopy(), patch); err != nil {
			t.Error(err)
		}
	}()
	out, err := call(t, env, "ipam", "rebuild", "dnet/"+n.Name, "--namespace="+n.Namespace)
	<-done
	if want := "DanmNet/" + n.Namespace + "/" + n.Name + ": 7 freed\n"; err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestRebuildErrors(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	failing := danmNet(t, env, ns, false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for annotation(ctx, t, env, failing, v1.RebuildAnnotation) == "" && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		report(ctx, t, env, failing, corev1.EventTypeWarning, v1.ReasonBitmapRebuildFailed, "entry of node-1 is corrupt")
	}()
	cases := map[string]struct {
		reason, target, want string
	}{
		"Failing":      {reason: "the message has the controller's Event", target: "danmnet/" + failing.Name, want: "entry of node-1 is corrupt"},
		"NoController": {reason: "no controller runs", target: "danmnet/" + danmNet(t, env, ns, false).Name, want: "check that it runs"},
		"NoNetwork":    {reason: "the network does not exist", target: "danmnet/nowhere", want: `"nowhere" not found`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := call(t, env, "ipam", "rebuild", tc.target, "-n", ns, "--timeout=10s")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
	<-done
}

func TestSkipMarksNetworksInRecovery(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns, other := env.Namespace(t), env.Namespace(t)
	recovering, ready, elsewhere := danmNet(t, env, ns, true), danmNet(t, env, ns, false), danmNet(t, env, other, true)
	for _, node := range []string{"node-7", "node-9", "node-7"} {
		out, err := call(t, env, "ipam", "skip", node, "-n", ns)
		if err != nil || !strings.Contains(out, recovering.Name) || strings.Contains(out, ready.Name) || strings.Contains(out, elsewhere.Name) {
			t.Errorf("skip %s prints %q, %v, want it to name %s only", node, out, err, recovering.Name)
		}
	}
	for n, want := range map[*v1.DanmNet]string{recovering: "node-7,node-9", ready: "", elsewhere: ""} {
		if got := annotation(t.Context(), t, env, n, v1.SkipAnnotation); got != want {
			t.Errorf("%s/%s skips %q, want %q", n.Namespace, n.Name, got, want)
		}
	}
	if out, err := call(t, env, "ipam", "skip", "node-8"); err != nil || !strings.Contains(out, elsewhere.Name) || !strings.Contains(out, recovering.Name) {
		t.Errorf("without --namespace: %q, %v, want all networks in recovery", out, err)
	}
	if out, err := call(t, env, "ipam", "skip", "node-8", "-n", env.Namespace(t)); err != nil || !strings.Contains(out, "nothing to skip") {
		t.Errorf("with no network in recovery: %q, %v", out, err)
	}
}

func TestSkipRejectsAReadyNode(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node")}}
	if err := env.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := env.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	n := danmNet(t, env, ns, true)
	if _, err := call(t, env, "ipam", "skip", node.Name, "-n", ns); err == nil || !strings.Contains(err.Error(), "is Ready") {
		t.Errorf("got error %v, want one that says that the node is Ready", err)
	}
	// Another test skips a node in all namespaces.
	if got := annotation(t.Context(), t, env, n, v1.SkipAnnotation); strings.Contains(got, node.Name) {
		t.Errorf("after the error: skipped %q, want no skip", got)
	}
	if _, err := call(t, env, "ipam", "skip", node.Name, "-n", ns, "--force"); err != nil {
		t.Errorf("with --force: %v", err)
	}
}

// The verb is for netadmins, whose role has the right to read a Node. Without it, the node may be Ready.
func TestSkipNeedsTheRightToReadNodes(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	netadmin, tenant := apitest.Name("netadmin"), apitest.Name("tenant")
	ns := env.Namespace(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: netadmin},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-netadmin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: netadmin}},
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "networks"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1.GroupName}, Resources: []string{"tenantnetworks", "danmnets"}, Verbs: []string{"get", "list", "patch"}}},
	}
	local := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "networks"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: tenant}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("node")}}
	for _, o := range []client.Object{binding, role, local, node} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	setReady := func(status corev1.ConditionStatus) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		if err := env.Client.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	n := danmNet(t, env, ns, true)
	for _, tc := range []struct {
		reason, user string
		ready        corev1.ConditionStatus
		args         []string
		want         string // in the error, empty for none
	}{
		{"The node's daemon reports.", netadmin, corev1.ConditionTrue, nil, "is Ready"},
		{"The user does not see that the node's daemon reports.", tenant, corev1.ConditionTrue, nil, "no right to check that (get nodes)"},
		{"The user does not see that the machine is off.", tenant, corev1.ConditionUnknown, nil, "ask a cluster administrator"},
		{"The machine is off.", netadmin, corev1.ConditionUnknown, nil, ""},
		{"An administrator has said that the machine is off.", tenant, corev1.ConditionUnknown, []string{"--force"}, ""},
	} {
		setReady(tc.ready)
		// Each case that is not refused must add the name itself.
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1.SkipAnnotation+`":null}}}`))
		if err := env.Client.Patch(t.Context(), n.DeepCopy(), patch); err != nil {
			t.Fatal(err)
		}
		_, err := call(t, env, append([]string{"ipam", "skip", node.Name, "-n", ns, "--as=" + tc.user}, tc.args...)...)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s Got error %v, want %q in it", tc.reason, err, tc.want)
		}
		if got := annotation(t.Context(), t, env, n, v1.SkipAnnotation); strings.Contains(got, node.Name) != (tc.want == "") {
			t.Errorf("%s Got the skipped nodes %q", tc.reason, got)
		}
	}
}
