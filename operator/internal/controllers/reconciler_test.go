// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/rollout"
)

// stored is a cache with one Installation.
type stored struct {
	client.Reader

	installation v1alpha1.Installation
}

// Get implements client.Reader.
func (s *stored) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	i, ok := into.(*v1alpha1.Installation)
	if !ok {
		return fmt.Errorf("no %T is stored", into)
	}
	s.installation.DeepCopyInto(i)
	return nil
}

// statusWriter answers writes of the status.
type statusWriter struct {
	client.SubResourceWriter

	err error
}

// Update implements client.SubResourceWriter.
func (w statusWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return w.err
}

// recorded has the reasons of Events.
type recorded struct{ reasons []string }

// Event implements EventRecorder.
func (r *recorded) Event(_ *v1alpha1.Installation, kind, reason, _ string) {
	r.reasons = append(r.reasons, kind+" "+reason)
}

// A user who changes the spec during a pass makes its write of the status fail. That is no error: the next pass is for
// the new spec.
func TestStatusConflict(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "installations"}, "patchbay", errors.New("modified"))
	for name, tc := range map[string]struct{ writeErr, want error }{
		"Conflict": {conflict, nil}, "Other": {context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := &recorded{}
			r := &Reconciler{Cache: &stored{installation: v1alpha1.Installation{Spec: v1alpha1.InstallationSpec{Version: "v9"}}}, Status: statusWriter{err: tc.writeErr}, Events: events, Now: time.Now}
			got, err := r.Reconcile(t.Context(), reconcile.Request{})
			if !errors.Is(err, tc.want) || len(events.reasons) > 0 {
				t.Fatalf("got error %v and Events %v, want %v and none", err, events.reasons, tc.want)
			}
			if tc.want == nil && got.RequeueAfter != conflictDelay {
				t.Errorf("got %+v, want another pass soon", got)
			}
		})
	}
}

// Kubernetes takes the daemon from nodes that a template does not match any more, and tells nobody.
func TestFewerNodes(t *testing.T) {
	t.Parallel()
	part := func(total int32) v1alpha1.PartStatuses {
		return v1alpha1.PartStatuses{Node: &v1alpha1.PartStatus{Total: total}}
	}
	cases := map[string]struct {
		reason       string
		before, next v1alpha1.PartStatuses
		want         []string
	}{
		"Fewer":   {"tolerations are too narrow", part(42), part(39), []string{"Warning FewerNodes"}},
		"None":    {"a selector with a typing error", part(42), part(0), []string{"Warning FewerNodes"}},
		"More":    {"a Node was added", part(42), part(43), nil},
		"First":   {"nothing was installed", v1alpha1.PartStatuses{}, part(3), nil},
		"Unknown": {"the part was not computed", part(3), v1alpha1.PartStatuses{}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := &recorded{}
			r := &Reconciler{Status: statusWriter{}, Events: events}
			i := &v1alpha1.Installation{Status: v1alpha1.InstallationStatus{Parts: tc.before}}
			if err := r.writeStatus(t.Context(), i, &v1alpha1.InstallationStatus{Parts: tc.next}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(events.reasons, tc.want) {
				t.Errorf("%s: got Events %v, want %v", tc.reason, events.reasons, tc.want)
			}
		})
	}
}

// templateOf returns a template with an account and an image.
func templateOf(account, image, annotation string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{render.ImageAnnotation: annotation}},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "x", Image: "sidecar"}, {Name: "c", Image: image}}},
	}
}

// Accounts keep their rights as long as Pods have them, or may get them from a workload that waits.
func TestAccounts(t *testing.T) {
	t.Parallel()
	pod := func(account string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: account}, Status: corev1.PodStatus{Phase: phase}}
	}
	plan := &render.Plan{Node: &render.Part{Name: "n"}, Controller: &render.Part{Name: "c"}}
	got := accounts(plan, map[string][]*corev1.Pod{
		"n": {pod("new", corev1.PodPending), pod("old", corev1.PodRunning), pod("evicted", corev1.PodFailed)}, "other": {pod("foreign", corev1.PodRunning)},
	}, map[string]*corev1.PodTemplateSpec{"n": templateOf("new", "", ""), "c": templateOf("waiting", "", "")})
	want := map[string][]string{"n": {"new", "old", "new"}, "c": {"waiting"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
}

// A new template waits for daemons that have just started, because Kubernetes would replace all of them at once.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	ready := func(p *corev1.Pod) *corev1.Pod {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
		return p
	}
	started := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now)}, Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{StartTime: &metav1.Time{Time: now}}}
	}
	template := func(hash string) *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{render.TemplateAnnotation: hash}}}
	}
	two := []*corev1.Pod{ready(started("a")), started("b")}
	cases := map[string]struct {
		reason    string
		present   *corev1.PodTemplateSpec
		onDelete  bool
		heldSince time.Time
		pods      []*corev1.Pod
		want      int
	}{
		"Changed":   {"both would get it at once", template("old"), false, time.Time{}, two, 2},
		"One":       {"the roll-out begins with one node", template("old"), false, time.Time{}, two[:1], 0},
		"Same":      {"nothing is rolled out", template("new"), false, time.Time{}, two, 0},
		"First":     {"there is no DaemonSet", nil, false, time.Time{}, two, 0},
		"Kubectl":   {"the operator takes it over", template(""), false, time.Time{}, two, 2},
		"OnDelete":  {"the user chooses the nodes", template("old"), true, time.Time{}, two, 0},
		"Waiting":   {"they may still become ready", template("old"), false, now.Add(-119 * time.Second), two, 2},
		"Exhausted": {"daemons that come and go must not stop a correction", template("old"), false, now.Add(-2 * time.Minute), two, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Reconciler{heldSince: tc.heldSince}
			part := &render.Part{Kind: "DaemonSet", Template: "new", OnDelete: tc.onDelete, Deadline: time.Minute, MinReady: 30 * time.Second}
			if got := r.unsettled(&rollout.Input{Part: part, Pods: tc.pods, Now: now}, tc.present); len(got) != tc.want {
				t.Errorf("%s: got %v, want %d nodes", tc.reason, got, tc.want)
			}
		})
	}
}

// The controller waits for nodes only if its image changes: a limit of its memory, or its webhooks, must not wait for a
// machine that is off for weeks.
func TestHasImage(t *testing.T) {
	t.Parallel()
	part := &render.Part{Container: "c", Image: "controller:2"}
	cases := map[string]struct {
		reason   string
		template *corev1.PodTemplateSpec
		want     bool
	}{
		"Same":     {"another field changes", templateOf("", "controller:2", "controller:2"), true},
		"Upgrade":  {"an older daemon cannot write what it writes", templateOf("", "controller:1", "controller:1"), false},
		"Mirrored": {"admission has rewritten the image", templateOf("", "mirror.example/controller:2", "controller:2"), true},
		"Kubectl":  {"kubectl has installed it", templateOf("", "controller:1", ""), false},
		"Missing":  {"a new one may be newer than the daemons", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := hasImage(part, tc.template); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

// accountsClient has the ServiceAccounts of a namespace.
type accountsClient struct {
	client.Reader

	names []string
	lists int
}

// List implements client.Reader.
func (c *accountsClient) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	list, ok := into.(*metav1.PartialObjectMetadataList)
	if !ok {
		return fmt.Errorf("unexpected list %T", into)
	}
	for _, name := range c.names {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return nil
}

// A ServiceAccount that a template names and that does not exist is named before the roll-out begins.
func TestMissingAccounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		account string
		exist   []string
		message string
		lists   int
	}{
		"Own":     {"The operator makes its own, and reads nothing.", "patchbayd", nil, "The spec can work", 0},
		"Exists":  {"The user has created it.", "mine", []string{"patchbay-agent", "mine"}, "The spec can work", 1},
		"Missing": {"No Pod would start.", "mine", []string{"yours"}, "The spec can work when these ServiceAccounts exist in the namespace patchbay-system, without which no Pod starts: mine of patchbayd", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, found := &accountsClient{names: tc.exist}, &findings{}
			plan := &render.Plan{Node: &render.Part{Name: "patchbayd", Account: tc.account}, Controller: &render.Part{Name: "patchbay-controller", Account: "patchbay-controller"}}
			if err := (&Reconciler{Live: c}).checkAccounts(t.Context(), plan, found); err != nil {
				t.Fatal(err)
			}
			status, reason, message := found.valid()
			if status != metav1.ConditionTrue || reason != v1alpha1.ReasonValid || message != tc.message || c.lists != tc.lists {
				t.Errorf("%s Got %s %s %q after %d lists, want %q after %d", tc.reason, status, reason, message, c.lists, tc.message, tc.lists)
			}
			if isSoon := found.recheck() == anotherInterval; isSoon != (tc.message != "The spec can work") {
				t.Errorf("the next pass is in %s: an account that a user creates is not watched", found.recheck())
			}
		})
	}
}

// bindingClient has the binding of the node daemon's rights.
type bindingClient struct {
	client.Reader

	subjects []rbacv1.Subject
}

// Get implements client.Reader.
func (c *bindingClient) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	binding, ok := into.(*rbacv1.ClusterRoleBinding)
	if !ok {
		return fmt.Errorf("unexpected object %T", into)
	}
	binding.Subjects = c.subjects
	return nil
}

// Only a ServiceAccount belongs to an installation. Users and groups have no namespace.
func TestCheckAlone(t *testing.T) {
	t.Parallel()
	plan, err := render.New(&v1alpha1.Installation{})
	if err != nil {
		t.Fatal(err)
	}
	account := func(namespace string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "patchbayd", Namespace: namespace}
	}
	for name, tc := range map[string]struct {
		reason   string
		subjects []rbacv1.Subject
		want     string
	}{
		"Own":     {"kubectl has installed it in the same namespace.", []rbacv1.Subject{account(render.Namespace)}, ""},
		"Group":   {"An administrator has added a group.", []rbacv1.Subject{account(render.Namespace), {Kind: rbacv1.GroupKind, Name: "auditors"}}, ""},
		"User":    {"An administrator has added a user.", []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "ann"}, account(render.Namespace)}, ""},
		"Another": {"Both would use the same files of nodes.", []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "auditors"}, account("network")}, "must be for namespace patchbay-system: got network. Uninstall Patchbay there first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Reconciler{Live: &bindingClient{subjects: tc.subjects}, Applier: apply.New(nil, nil)}
			err := r.checkAlone(t.Context(), plan)
			if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, errAnother) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s Got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
