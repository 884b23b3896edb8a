// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: c, image: "i:1", resources: {requests: {cpu: "1000m"}}}
`

func configMap(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}, data: {key: %s}}", name, value)
}

// The agent applies, reports and repairs a Work, and writes nothing when it is settled.
func TestAgentApplies(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.work(t, "deployment-web", nil, manifest(t, "deployments", deployment))
	s := b.awaitWork(t, w, "the Deployment is applied", applied(1))

	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: "shop", Name: "web"} // the agent has created the namespace, too
	if err := b.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	m := s.Manifests[0]
	if m.UID != d.UID || m.Generation != d.Generation || m.AppliedGeneration != 1 || m.SourceGeneration != 1 || *m.Replicas != 3 || m.Ready {
		t.Errorf("report: got %+v, want the Deployment's identity, 3 replicas, not ready", m)
	}
	if d.Labels[v1alpha1.ManagedLabel] != "true" || d.Annotations[v1alpha1.SourceUIDAnnotation] != "source-1" || d.Annotations[v1alpha1.HubUIDAnnotation] != "hub-1" {
		t.Errorf("got labels %v, annotations %v", d.Labels, d.Annotations)
	}

	t.Run("ExactStatus", func(t *testing.T) {
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, UpdatedReplicas: 3,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			}}
		if err := b.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s := b.awaitWork(t, w, "the status is reported", func(s v1alpha1.WorkStatus) bool { return s.Manifests[0].Ready })
		live := b.object(t, "apps/v1", "Deployment", "shop", "web")
		if got, want := string(s.Manifests[0].Status.Raw), jsonOf(t, live.Object["status"]); got != want {
			t.Errorf("status: got %s, want %s", got, want)
		}
	})
	t.Run("SilentWhenSettled", func(t *testing.T) {
		before := b.versions(t, w)
		<-time.After(3 * time.Second)
		if after := b.versions(t, w); after != before {
			t.Errorf("resourceVersions: got %s, want %s: the agent must not write", after, before)
		}
	})
	t.Run("RepairDeletion", func(t *testing.T) {
		if err := b.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		b.awaitWork(t, w, "a new Deployment", func(s v1alpha1.WorkStatus) bool {
			return s.Manifests[0].UID != "" && s.Manifests[0].UID != d.UID && applied(1)(s)
		})
	})
	t.Run("ChangeOfOthersIsAConflict", func(t *testing.T) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`))
		if err := b.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, patch, client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
		b.awaitWork(t, w, "the conflict is reported", failed(v1alpha1.ReasonConflict, "spec.replicas"))
		if got := field(b.object(t, "apps/v1", "Deployment", "shop", "web"), "spec", "replicas"); got != "7" {
			t.Errorf("replicas: got %s, want 7 of the other owner", got)
		}
	})
	t.Run("Yield", func(t *testing.T) {
		b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Apply.Yield = []v1alpha1.FieldPath{"spec.replicas"} })
		b.awaitWork(t, w, "the field is left to its owner", applied(w.Spec.Revision))
		if got := field(b.object(t, "apps/v1", "Deployment", "shop", "web"), "spec", "replicas"); got != "7" {
			t.Errorf("replicas: got %s, want 7", got)
		}
		for _, n := range []string{"0", "3"} { // the hub still decides whether there are replicas
			b.change(t, w, func(s *v1alpha1.WorkSpec) {
				s.Manifests = []v1alpha1.Manifest{manifest(t, "deployments", strings.Replace(deployment, "replicas: 3", "replicas: "+n, 1))}
			})
			b.awaitWork(t, w, "the replicas are scaled to 0 and back", applied(w.Spec.Revision))
			if got := field(b.object(t, "apps/v1", "Deployment", "shop", "web"), "spec", "replicas"); got != n {
				t.Errorf("replicas: got %s, want %s", got, n)
			}
		}
	})
	t.Run("Autoscaled", func(t *testing.T) { testAutoscaled(t, b, w) })
	t.Run("Pods", func(t *testing.T) { testPods(t, b, w) })
	t.Run("Heartbeat", func(t *testing.T) {
		eventually(t, "the Lease is renewed", func() error {
			lease := &coordinationv1.Lease{}
			if err := b.Get(t.Context(), client.ObjectKey{Namespace: clusterNamespace, Name: v1alpha1.HeartbeatLease}, lease); err != nil {
				return err
			}
			if got := lease.Annotations[v1alpha1.AppliedWorksAnnotation]; got != "1" {
				return fmt.Errorf("annotation %s: got %q, want 1 record", v1alpha1.AppliedWorksAnnotation, got)
			}
			return nil
		})
		eventually(t, "the Cluster's status", func() error {
			c := &v1alpha1.Cluster{}
			if err := b.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
				return err
			}
			if c.Status.Versions == nil || c.Status.HubUID == "" {
				return fmt.Errorf("status %+v", c.Status)
			}
			return nil
		})
	})
}

// testAutoscaled moves replicas of an autoscaler: the agent reports what the autoscaler requests, raises it once if the
// hub needs more, and takes nothing back when the move has ended. A new object is the autoscaler's at once.
func testAutoscaled(t *testing.T, b *testAgent, w *v1alpha1.Work) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	scale := func(n int) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := b.Patch(t.Context(), d, patch, client.FieldOwner("keda")); err != nil {
			t.Fatal(err)
		}
	}
	reports := func(n int32) func(v1alpha1.WorkStatus) bool {
		return func(s v1alpha1.WorkStatus) bool {
			got := s.Manifests[0].AutoscaledReplicas
			return applied(w.Spec.Revision)(s) && got != nil && *got == n
		}
	}
	scale(12)
	b.awaitWork(t, w, "the autoscaler's count is reported", reports(12))
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.MinReplicas = new(int32(20)) })
	b.awaitWork(t, w, "the hub's need is met", reports(20))
	scale(4)
	b.awaitWork(t, w, "no fight with the autoscaler", reports(4))
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.MinReplicas = nil })
	b.awaitWork(t, w, "the move has ended", reports(4))
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.MinReplicas = new(int32(3)) })
	if err := b.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, w, "a new object is left to the autoscaler at once", reports(3))
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.MinReplicas = nil
		s.Manifests[0].Object.Raw = []byte(strings.Replace(string(s.Manifests[0].Object.Raw), `"replicas":3`, `"replicas":1`, 1))
	})
	b.awaitWork(t, w, "the end of the move takes nothing back", reports(3))
	rescale := func(n int32, ofSource int64) {
		t.Helper()
		b.change(t, w, func(s *v1alpha1.WorkSpec) {
			o := &unstructured.Unstructured{}
			if err := o.UnmarshalJSON(s.Manifests[0].Object.Raw); err != nil {
				t.Fatal(err)
			}
			err := unstructured.SetNestedField(o.Object, int64(n), "spec", "replicas")
			raw, marshalErr := o.MarshalJSON()
			if err := errors.Join(err, marshalErr); err != nil {
				t.Fatal(err)
			}
			s.Manifests[0].Object.Raw, s.SourceGeneration = raw, s.SourceGeneration+ofSource
		})
	}
	runs := func(n int32) func(v1alpha1.WorkStatus) bool {
		return func(s v1alpha1.WorkStatus) bool {
			m := s.Manifests[0]
			return applied(w.Spec.Revision)(s) && m.AutoscaledReplicas == nil && m.Replicas != nil && *m.Replicas == n
		}
	}
	rescale(2, 0)
	b.awaitWork(t, w, "the hub's own steps take nothing back either", reports(3))
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ })
	b.awaitWork(t, w, "nor does a user's change of another field", reports(3))
	rescale(5, 1)
	b.awaitWork(t, w, "no autoscaler has set the field, and a user changes it", runs(5))
	rescale(1, 0)
	b.awaitWork(t, w, "the agent has the field again, for each step of the hub", runs(1))
	scale(3)
	b.awaitWork(t, w, "an autoscaler sets it", reports(3))
	rescale(6, 1)
	b.awaitWork(t, w, "the autoscaler keeps it", reports(3))
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Apply.Yield = nil })
	b.awaitWork(t, w, "without yield there is no autoscaler", func(s v1alpha1.WorkStatus) bool {
		return s.Revision == w.Spec.Revision && s.Manifests[0].AutoscaledReplicas == nil
	})
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Apply.Yield = []v1alpha1.FieldPath{"spec.replicas"} })
	b.awaitWork(t, w, "the field is left to its owner again", applied(w.Spec.Revision))
}

// testPods creates the Pods of a Deployment, as controllers would, and waits for them in the report.
func testPods(t *testing.T, b *testAgent, w *v1alpha1.Work) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")),
	}}, Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}
	if err := b.Create(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-1-", i), OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
		}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := b.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodRunning
		if i == 0 {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m"},
			}}}
		}
		if err := b.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s := b.awaitWork(t, w, "the Pods are counted", func(s v1alpha1.WorkStatus) bool {
		a := s.Manifests[0].Associated
		return a != nil && a.Pods["Running"] == 2 && a.Pods["CrashLoopBackOff"] == 1
	})
	if broken := s.Manifests[0].Associated.Broken; len(broken) != 1 || broken[0].Name != "web-1-0" || broken[0].Message != "back-off 5m" {
		t.Errorf("broken: got %+v, want web-1-0", broken)
	}
}

// apply.conflict decides about objects and fields with another owner.
func TestAgentConflicts(t *testing.T) {
	t.Parallel()
	b := start(t)
	cases := map[string]struct {
		reason   string
		conflict v1alpha1.ConflictMode
		value    string // in the manifest; the object has "theirs"
		want     func(v1alpha1.WorkStatus) bool
		wantData string
	}{
		"refuse": {reason: "Refuse leaves an existing object unchanged.", conflict: v1alpha1.ConflictRefuse, value: "ours", want: failed(v1alpha1.ReasonConflict, "not the agent's"), wantData: "theirs"},
		"adopt":  {reason: "Adopt adopts an object without changes of its fields.", conflict: v1alpha1.ConflictAdopt, value: "theirs", want: applied(1), wantData: "theirs"},
		"field":  {reason: "Adopt takes no field of another owner.", conflict: v1alpha1.ConflictAdopt, value: "ours", want: failed(v1alpha1.ReasonConflict, "data.key"), wantData: "theirs"},
		"force":  {reason: "Force takes fields of other owners.", conflict: v1alpha1.ConflictForce, value: "ours", want: applied(1), wantData: "ours"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"key": "theirs"}}
			if err := b.Create(t.Context(), o, client.FieldOwner("them")); err != nil {
				t.Fatal(err)
			}
			w := b.work(t, name, func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = tc.conflict }, manifest(t, "configmaps", configMap(name, tc.value)))
			b.awaitWork(t, w, tc.reason, tc.want)
			if got := field(b.object(t, "v1", "ConfigMap", "default", name), "data", "key"); got != tc.wantData {
				t.Errorf("%s\ndata: got %s, want %s", tc.reason, got, tc.wantData)
			}
		})
	}
	t.Run("guard", func(t *testing.T) {
		w := b.work(t, "guarded", nil, manifest(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: kube-system}}`))
		b.awaitWork(t, w, "kube-system is rejected", failed(v1alpha1.ReasonRefused, "kube-system"))
		w = b.work(t, "rights", nil, manifest(t, "clusterroles", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: x}}`))
		b.awaitWork(t, w, "RBAC kinds are rejected", failed(v1alpha1.ReasonRefused, "cluster's own admin"))
		w = b.work(t, "invalid", nil, manifest(t, "services", `{apiVersion: v1, kind: Service, metadata: {name: x, namespace: default}, spec: {ports: [{port: 99999}]}}`))
		b.awaitWork(t, w, "the API server's message is reported", failed("Invalid", "spec.ports[0].port"))
	})
	t.Run("createOnly", func(t *testing.T) {
		w := b.work(t, "create-only", func(s *v1alpha1.WorkSpec) { s.Apply.CreateOnly = []v1alpha1.FieldPath{"data.key"} },
			manifest(t, "configmaps", configMap("create-only", "first")))
		b.awaitWork(t, w, "created", applied(1))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"theirs"}}`))
		if err := b.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "create-only"}}, patch); err != nil {
			t.Fatal(err)
		}
		b.change(t, w, func(s *v1alpha1.WorkSpec) {
			s.Manifests = []v1alpha1.Manifest{manifest(t, "configmaps", configMap("create-only", "second"))}
		})
		b.awaitWork(t, w, "applied again", applied(2))
		if got := field(b.object(t, "v1", "ConfigMap", "default", "create-only"), "data", "key"); got != "theirs" {
			t.Errorf("data: got %s, want theirs", got)
		}
	})
}

// The error for a field that cannot change has object and field. The object stays as it is, and the agent still
// reports it.
func TestAgentReportsImmutableFields(t *testing.T) {
	t.Parallel()
	b := start(t)
	const pod = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: %s}]}}"
	cases := map[string]struct{ reason, resource, head, before, after, field string }{
		"Job": {
			"The template of a Job cannot change.", "jobs", "{apiVersion: batch/v1, kind: Job, metadata: {name: x, namespace: default}, spec: {%s}}",
			fmt.Sprintf(pod, "a"), fmt.Sprintf(pod, "b"), "spec.template",
		},
		"Completions": {
			"The completions of a Job cannot change.", "jobs", "{apiVersion: batch/v1, kind: Job, metadata: {name: sums, namespace: default}, spec: {completions: %s, " + fmt.Sprintf(pod, "a") + "}}",
			"3", "5", "spec.completions",
		},
		"Claim": {
			"The storage class of a claim cannot change.", "persistentvolumeclaims", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x, namespace: default}, " +
				"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: %s}}", "slow", "fast", "spec",
		},
		"Service": {
			"The cluster IP of a Service cannot change.", "services", "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: default}, spec: {ports: [{port: 80}], clusterIP: %s}}",
			"10.96.7.7", "10.96.7.8", "spec.clusterIPs[0]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := b.work(t, strings.ToLower(name), nil, manifest(t, tc.resource, fmt.Sprintf(tc.head, tc.before)))
			good := b.awaitWork(t, w, "applied", applied(1)).Manifests[0]
			b.change(t, w, func(s *v1alpha1.WorkSpec) {
				s.Manifests = []v1alpha1.Manifest{manifest(t, tc.resource, fmt.Sprintf(tc.head, tc.after))}
			})
			s := b.awaitWork(t, w, tc.reason, failed("Invalid", tc.field))
			m := s.Manifests[0]
			if m.UID != good.UID || m.Generation != good.Generation || m.AppliedGeneration != good.AppliedGeneration {
				t.Errorf("%s\nreport: got %+v, want the object as it was, %+v", tc.reason, m, good)
			}
			if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionApplied); !strings.Contains(c.Message, " default/"+m.Name+":") {
				t.Errorf("%s\ngot %q, want the object's name", tc.reason, c.Message)
			}
			b.change(t, w, func(s *v1alpha1.WorkSpec) {
				s.Manifests = []v1alpha1.Manifest{manifest(t, tc.resource, fmt.Sprintf(tc.head, tc.before))}
			})
			b.awaitWork(t, w, "corrected", applied(3))
		})
	}
}

// The agent does not create an object that runs once a second time after its deletion in the cluster.
func TestAgentCreatesNoSecondPod(t *testing.T) {
	t.Parallel()
	b := start(t)
	const spec = "spec: {automountServiceAccountToken: false, serviceAccountName: default, restartPolicy: Never, containers: [{name: c, image: i}]}"
	if err := b.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	outer := t // the agent runs longer than the case
	for kind, text := range map[string]string{
		"Pod": "{apiVersion: v1, kind: Pod, metadata: {name: once, namespace: default}, " + spec + "}",
		"Job": "{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: default}, spec: {template: {" + spec + "}}}",
	} {
		t.Run(kind, func(t *testing.T) {
			resource := strings.ToLower(kind) + "s"
			w := b.work(t, resource, nil, manifest(t, resource, text))
			b.awaitWork(t, w, "applied", applied(1))
			version := map[string]string{"Pod": "v1", "Job": "batch/v1"}[kind]
			ran := b.object(t, version, kind, "default", "once")
			conditions := []any{map[string]any{"type": "Suspended", "status": "False", "reason": "kept"}}
			if err := unstructured.SetNestedSlice(ran.Object, conditions, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
			if err := b.Status().Update(t.Context(), ran); err != nil {
				t.Fatal(err)
			}
			b.awaitWork(t, w, "the status is reported", func(s v1alpha1.WorkStatus) bool {
				return s.Manifests[0].Status != nil && strings.Contains(string(s.Manifests[0].Status.Raw), "kept")
			})
			if err := b.Delete(t.Context(), b.object(t, version, kind, "default", "once"), client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			gone := func(t *testing.T) {
				t.Helper()
				s := b.awaitWork(t, w, "it is gone", failed(v1alpha1.ReasonDeletedInCluster, resource))
				if m := s.Manifests[0]; m.Status == nil || !strings.Contains(string(m.Status.Raw), "kept") || m.UID == "" {
					t.Errorf("report: got %+v, want the last status", m)
				}
				if b.object(t, version, kind, "default", "once") != nil {
					t.Error("it was made again")
				}
			}
			gone(t)
			// The cluster leaves, and joins again: without a record.
			b.stop()
			if err := b.Delete(t.Context(), &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: resource}}); err != nil {
				t.Fatal(err)
			}
			b.change(t, w, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ })
			b.run(outer)
			b.awaitWork(t, w, "the Work is reconciled again", func(s v1alpha1.WorkStatus) bool { return s.Revision == w.Spec.Revision })
			gone(t)
		})
	}
}

// Nothing is removed but by an order, and only what we made.
func TestAgentRemoves(t *testing.T) {
	t.Parallel()
	b := start(t)
	order := func(policy v1alpha1.OnDelete, source string) func(*v1alpha1.WorkSpec) {
		return func(s *v1alpha1.WorkSpec) {
			s.Removal = &v1alpha1.Removal{Policy: policy, SourceUID: "source-1"}
			if source != "" {
				s.Removal.SourceUID = "source-2"
			}
		}
	}
	made := func(t *testing.T, name string) *v1alpha1.Work {
		t.Helper()
		w := b.work(t, name, nil, manifest(t, "configmaps", configMap(name, "v")))
		b.awaitWork(t, w, "applied", applied(1))
		return w
	}
	t.Run("Delete", func(t *testing.T) {
		w := made(t, "delete")
		b.change(t, w, order(v1alpha1.OnDeleteDelete, ""))
		b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
		if b.object(t, "v1", "ConfigMap", "default", "delete") != nil {
			t.Error("the object is still there")
		}
		if rec := b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", "delete"); rec != nil {
			t.Error("the record is still there")
		}
	})
	t.Run("Orphan", func(t *testing.T) {
		w := made(t, "orphan")
		b.change(t, w, order(v1alpha1.OnDeleteOrphan, ""))
		b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
		o := b.object(t, "v1", "ConfigMap", "default", "orphan")
		if field(o, "data", "key") != "v" || len(o.GetLabels()) > 0 || len(o.GetAnnotations()) > 0 {
			t.Errorf("object: got %v, want it as it was, without marks", o)
		}
	})
	t.Run("WrongSource", func(t *testing.T) {
		w := made(t, "wrong")
		b.change(t, w, order(v1alpha1.OnDeleteDelete, "other"))
		b.awaitWork(t, w, "the order is refused", failed(v1alpha1.ReasonRefused, "source-2"))
		if b.object(t, "v1", "ConfigMap", "default", "wrong") == nil {
			t.Error("the object is gone")
		}
	})
	t.Run("NeverMade", func(t *testing.T) {
		w := b.work(t, "never", order(v1alpha1.OnDeleteDelete, ""), manifest(t, "configmaps", configMap("never", "v")))
		b.awaitWork(t, w, "done at once", failed(v1alpha1.ReasonRemoved, ""))
	})
	t.Run("SomebodyElses", func(t *testing.T) {
		if err := b.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}}); err != nil {
			t.Fatal(err)
		}
		w := b.work(t, "theirs", nil, manifest(t, "configmaps", configMap("theirs", "v")))
		b.awaitWork(t, w, "refused", failed(v1alpha1.ReasonConflict, ""))
		b.change(t, w, order(v1alpha1.OnDeleteDelete, ""))
		b.awaitWork(t, w, "done", failed(v1alpha1.ReasonRemoved, ""))
		if b.object(t, "v1", "ConfigMap", "default", "theirs") == nil {
			t.Error("the object is gone, and was not ours")
		}
	})
	outer := t // the agent runs longer than the case
	for name, uid := range map[string]types.UID{"no-entry": "", "an-earlier-life": "x"} {
		t.Run(name, func(t *testing.T) { // the agent ended after it made the object, before it noted that
			w := made(t, name)
			b.stop()
			b.change(t, w, order(v1alpha1.OnDeleteDelete, ""))
			rec := &v1alpha1.AppliedWork{}
			if err := b.Get(t.Context(), client.ObjectKey{Name: name}, rec); err != nil {
				t.Fatal(err)
			}
			rec.Spec.Work = w.Spec // recorded already: the agent has not applied the object before
			if err := b.Update(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			rec.Status.Objects[0].UID = uid
			if uid == "" {
				rec.Status.Objects = nil
			}
			if err := b.Status().Update(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			b.run(outer)
			b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
			if b.object(t, "v1", "ConfigMap", "default", name) != nil {
				t.Error("the object is still there")
			}
		})
	}
	t.Run("WorkVanishes", func(t *testing.T) {
		w := made(t, "vanish")
		if err := b.Delete(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the record is orphaned", func() error { return b.condition(t, "vanish", v1alpha1.ConditionOrphaned) })
		if err := b.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vanish"}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "what is orphaned is repaired", func() error {
			if b.object(t, "v1", "ConfigMap", "default", "vanish") == nil {
				return errors.New("gone")
			}
			return nil
		})
	})
}

// Works that were there before the agent are carried out, too.
func TestAgentFindsWorks(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.awaitWork(t, b.work(t, "first", nil, manifest(t, "configmaps", configMap("first", "v"))), "applied", applied(1))
	b.stop()
	var works []*v1alpha1.Work
	for i := range 20 {
		name := fmt.Sprint("early-", i)
		works = append(works, b.work(t, name, nil, manifest(t, "configmaps", configMap(name, "v"))))
	}
	b.run(t)
	for _, w := range works {
		b.awaitWork(t, w, "applied", applied(1))
	}
}

// A record whose creation was stored, though its answer was lost, is found.
func TestAgentFindsRecord(t *testing.T) {
	t.Parallel()
	b := start(t)
	m := manifest(t, "configmaps", configMap("lost", "v"))
	b.awaitWork(t, b.work(t, "first", nil, manifest(t, "configmaps", configMap("first", "v"))), "the records are read", applied(1))
	rec := &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
	rec.Spec.Work = v1alpha1.WorkSpec{HubUID: "hub-1", Revision: 1, Source: v1alpha1.ObjectReference{
		Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: "lost", UID: "source-1",
	}, SourceGeneration: 1, Manifests: []v1alpha1.Manifest{m}}
	if err := b.Create(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, b.work(t, "lost", nil, m), "applied", applied(1))
}

// condition returns an error unless the record has the condition as True.
func (b *testAgent) condition(t *testing.T, record, kind string) error {
	t.Helper()
	rec := &v1alpha1.AppliedWork{}
	if err := b.Get(t.Context(), client.ObjectKey{Name: record}, rec); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(rec.Status.Conditions, kind) {
		return fmt.Errorf("conditions %+v", rec.Status.Conditions)
	}
	return nil
}

// versions returns the resourceVersions of all objects that the agent writes for a Work.
func (b *testAgent) versions(t *testing.T, w *v1alpha1.Work) string {
	t.Helper()
	rec := b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", w.Name)
	work := b.object(t, v1alpha1.SchemeGroupVersion().String(), "Work", w.Namespace, w.Name)
	d := b.object(t, "apps/v1", "Deployment", "shop", "web")
	return work.GetResourceVersion() + " " + rec.GetResourceVersion() + " " + d.GetResourceVersion()
}

// The data of a placed Secret come from the Secret beside the Work, and are in no record. While they are missing,
// the cluster's Secret stays as it is.
func TestAgentFetchesSecrets(t *testing.T) {
	t.Parallel()
	b := start(t)
	beside := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "secret-db", Annotations: map[string]string{v1alpha1.DataVersionAnnotation: "v1"}},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}
	const text = "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop}}"
	at := func(version string) v1alpha1.Manifest {
		m := manifest(t, "secrets", text)
		m.Secret = &v1alpha1.SecretData{Version: version}
		return m
	}
	live := func(want string) {
		t.Helper()
		if got := field(b.object(t, "v1", "Secret", "shop", "db"), "data", "password"); got != want {
			t.Errorf("data: got %s, want %s", got, want)
		}
	}
	w := b.work(t, "secret-db", nil, at("v1"))
	b.awaitWork(t, w, "the data are missing", failed(v1alpha1.ReasonProgressing, "the hub does not have the data of this revision"))
	if b.object(t, "v1", "Secret", "shop", "db") != nil {
		t.Error("the agent created a Secret without its data")
	}
	if err := b.Create(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	b.awaitWork(t, w, "the data are applied", applied(1))
	live("aHVudGVyMg==")

	beside.Data["password"], beside.Annotations[v1alpha1.DataVersionAnnotation] = []byte("hunter3"), "v2"
	if err := b.Update(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Manifests = []v1alpha1.Manifest{at("v2")} })
	b.awaitWork(t, w, "other data", applied(2))
	live("aHVudGVyMw==")
	rec := jsonOf(t, b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", "secret-db").Object)
	if strings.Contains(rec, "hunter") || strings.Contains(rec, "aHVudGVy") {
		t.Errorf("record: got %s, with a value", rec)
	}
	if err := b.Delete(t.Context(), b.object(t, "v1", "Secret", "shop", "db")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted Secret is created again", func() error {
		if b.object(t, "v1", "Secret", "shop", "db") == nil {
			return errors.New("gone")
		}
		return nil
	})
	live("aHVudGVyMw==")

	b.stop() // its cache is gone
	for _, o := range []client.Object{beside, b.object(t, "v1", "Secret", "shop", "db")} {
		if err := b.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t)
	eventually(t, "the Secret is created again from the cluster's copy", func() error {
		if b.object(t, "v1", "Secret", "shop", "db") == nil {
			return errors.New("gone")
		}
		return nil
	})
	live("aHVudGVyMw==")
	b.awaitWork(t, w, "it is applied", applied(2))

	b.stop()
	copied := b.object(t, "v1", "Secret", v1alpha1.SecretCopyNamespace, w.Name)
	owner := b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", w.Name)
	if !metav1.IsControlledBy(copied, owner) {
		t.Errorf("copy: got owners %v, want the AppliedWork", copied.GetOwnerReferences())
	}
	if err := b.Delete(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	b.awaitWork(t, w, "it waits for the data", failed(v1alpha1.ReasonProgressing, "secrets shop/db: data"))
	live("aHVudGVyMw==")
}

// An agent that starts while its hub is unreachable repairs a Secret from the cluster's copy. It does not use a
// copy of another version than the record's.
func TestAgentRepairsSecretsAlone(t *testing.T) {
	t.Parallel()
	b := start(t)
	beside := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "secret-db", Annotations: map[string]string{v1alpha1.DataVersionAnnotation: "v1"}},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}
	if err := b.Create(t.Context(), beside); err != nil {
		t.Fatal(err)
	}
	m := manifest(t, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop}}")
	m.Secret = &v1alpha1.SecretData{Version: "v1"}
	w := b.work(t, "secret-db", nil, m)
	b.awaitWork(t, w, "applied", applied(1))
	copied := &corev1.Secret{}
	eventually(t, "the data are copied", func() error {
		return b.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SecretCopyNamespace, Name: w.Name}, copied)
	})
	b.stop()
	before := b.object(t, "v1", "Secret", "shop", "db")
	if err := b.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	unreachable := rest.CopyConfig(b.env.Config)
	unreachable.Host = "https://127.0.0.1:1"
	b.runAt(t, unreachable)
	eventually(t, "the Secret is created again", func() error {
		if o := b.object(t, "v1", "Secret", "shop", "db"); o == nil || o.GetUID() == before.GetUID() || field(o, "data", "password") != "aHVudGVyMg==" {
			return fmt.Errorf("got %v, want a new one with the data", o)
		}
		return nil
	})
	b.stop()

	copied.Annotations[v1alpha1.DataVersionAnnotation], copied.Data["password"] = "v0", []byte("hunter0")
	if err := b.Update(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), b.object(t, "v1", "Secret", "shop", "db")); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	eventually(t, "the hub's data are in the Secret and in the copy", func() error {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
			return err
		}
		if o := b.object(t, "v1", "Secret", "shop", "db"); o == nil || field(o, "data", "password") != "aHVudGVyMg==" || string(copied.Data["password"]) != "hunter2" {
			return fmt.Errorf("got %v, and the copy's version %v", o, copied.Annotations)
		}
		return nil
	})
}
