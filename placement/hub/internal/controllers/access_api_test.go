// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/clusters"
)

// The hub revokes the rights of a deleted Cluster, and grants them when it is created again.
func TestRightsFollowTheCluster(t *testing.T) {
	h := newTestHub(t)
	const name = "rights"
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	ns := v1alpha1.ClusterNamespacePrefix + name
	rights := map[client.ObjectKey]client.Object{
		{Namespace: ns, Name: clusters.AgentRole}: &rbacv1.RoleBinding{},
		{Namespace: ns, Name: clusters.JoinRole}:  &rbacv1.RoleBinding{},
		{Name: v1alpha1.ClusterUserPrefix + name}: &rbacv1.ClusterRoleBinding{},
	}
	are := func(there bool) {
		t.Helper()
		for key, o := range rights {
			h.eventually(fmt.Sprintf("%T %s to exist: %v", o, key, there), func(ctx context.Context) error {
				err := h.client.Get(ctx, key, o)
				if (err == nil) != there || client.IgnoreNotFound(err) != nil {
					return errors.Join(errNotYet, err)
				}
				return nil
			})
		}
	}
	h.create(cluster.DeepCopy())
	are(true)
	if err := h.client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	are(false)
	h.create(cluster.DeepCopy())
	are(true)
}

// named, account, binding and newLike make objects of the names that the hub uses.
func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}
}

func account(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: named(namespace, v1alpha1.AgentAccount)}
}

func binding(namespace, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: named(namespace, role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	}
}

func newLike(o client.Object) client.Object {
	made, _ := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(o).Elem()))
	made.SetNamespace(o.GetNamespace())
	made.SetName(o.GetName())
	return made
}

// The hub restores what another client deletes or changes of a cluster's rights, and writes nothing
// after that.
func TestRightsAreRepaired(t *testing.T) {
	h := newTestHub(t)
	const name = "repaired"
	h.cluster(name, v1alpha1.ClusterSpec{})
	ns, user := v1alpha1.ClusterNamespacePrefix+name, v1alpha1.ClusterUserPrefix+name
	objects := []client.Object{
		&rbacv1.Role{ObjectMeta: named(ns, clusters.AgentRole)}, &rbacv1.Role{ObjectMeta: named(ns, clusters.JoinRole)}, account(ns),
		&rbacv1.RoleBinding{ObjectMeta: named(ns, clusters.AgentRole)}, &rbacv1.RoleBinding{ObjectMeta: named(ns, clusters.JoinRole)},
		&rbacv1.ClusterRole{ObjectMeta: named("", user)}, &rbacv1.ClusterRoleBinding{ObjectMeta: named("", user)},
	}
	for _, o := range objects {
		before := newLike(o)
		h.eventually(fmt.Sprintf("%T %s", o, o.GetName()), func(ctx context.Context) error {
			return h.client.Get(ctx, client.ObjectKeyFromObject(o), before)
		})
		h.delete(before)
		h.eventually(fmt.Sprintf("%T %s to be created again", o, o.GetName()), func(ctx context.Context) error {
			return h.client.Get(ctx, client.ObjectKeyFromObject(o), newLike(o))
		})
	}
	role := &rbacv1.Role{}
	key := client.ObjectKey{Namespace: ns, Name: clusters.AgentRole}
	if err := h.client.Get(t.Context(), key, role); err != nil {
		t.Fatal(err)
	}
	want := role.Rules
	role.Rules = nil
	if err := h.client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	h.eventually("the Role to have its rules", func(ctx context.Context) error {
		if err := h.client.Get(ctx, key, role); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(role.Rules, want) {
			return fmt.Errorf("%w: %+v", errNotYet, role.Rules)
		}
		return nil
	})
	inside := &rbacv1.RoleBinding{}
	if err := h.client.Get(t.Context(), key, inside); err != nil {
		t.Fatal(err)
	}
	inside.RoleRef.Name = clusters.JoinRole // roleRef is immutable: the hub must create the binding again
	h.delete(inside.DeepCopy())
	inside.UID, inside.ResourceVersion = "", ""
	if err := h.client.Create(t.Context(), inside); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	h.eventually("the binding to have its Role", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(inside), inside); err != nil || inside.RoleRef.Name != clusters.AgentRole {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	versions := func() (all []string) {
		for _, o := range objects {
			if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			all = append(all, o.GetResourceVersion())
		}
		return all
	}
	before := versions()
	time.Sleep(clusters.StatusInterval + time.Second) // the hub has reconciled it once more by then
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("resource versions: got %v, want %v as before", after, before)
	}
}

// The hub does not take over a namespace that another client has made, whatever its labels: that client
// could read what is placed there. An admin may hand it over.
func TestNamespacesOfOthersAreLeft(t *testing.T) {
	h := newTestHub(t)
	const name = "squatted"
	ns := &corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+name)}
	h.create(ns)
	h.create(&coordinationv1.Lease{ // without the check the cluster would be reachable
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	theirs := binding(ns.Name, clusters.AgentRole)
	theirs.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}}
	h.create(theirs)
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	h.create(cluster)
	expectCondition := func(kind string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		h.eventually(kind+" to have the reason "+reason, func(ctx context.Context) error {
			if err := h.client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c == nil || c.Status != status || c.Reason != reason {
				return fmt.Errorf("%w: %+v", errNotYet, c)
			}
			return nil
		})
	}
	expectCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken)
	expectCondition(v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken)
	home := h.namespace("squatted")
	h.create(configMap(home, "web", name))
	h.expectReported(configKey(home, "web"), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, name)
	h.expectWorks(configKey(home, "web"), map[string]int32{})
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: named(ns.Name, clusters.AgentRole)}, account(ns.Name), binding(ns.Name, clusters.JoinRole),
		&rbacv1.ClusterRole{ObjectMeta: named("", v1alpha1.ClusterUserPrefix+name)},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", v1alpha1.ClusterUserPrefix+name)},
	} {
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: got %v, want none", o, o.GetName(), err)
		}
	}
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("RoleBinding of another client: got %v, want it unchanged", err)
	}
	h.delete(theirs)
	h.setAnnotation(ns, v1alpha1.ClusterUIDAnnotation, string(cluster.UID))
	expectCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	expectCondition(v1alpha1.ConditionReachable, metav1.ConditionTrue, "HeartbeatReceived")
	h.expectWorks(configKey(home, "web"), map[string]int32{name: 0})
}

// Earlier versions of the hub only labelled their namespaces. These stay the hub's, also when their
// Cluster is created again.
func TestNamespacesOfEarlierHubsStay(t *testing.T) {
	h := newTestHub(t)
	const name = "upgraded"
	user := v1alpha1.ClusterUserPrefix + name
	h.create(&rbacv1.ClusterRole{ObjectMeta: named("", user)})
	h.create(&corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+name)})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	for range 2 {
		made := cluster.DeepCopy()
		h.create(made)
		h.eventually("the namespace to be this Cluster's", func(ctx context.Context) error {
			ns, role := &corev1.Namespace{}, &rbacv1.ClusterRole{}
			err := errors.Join(h.client.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterNamespacePrefix + name}, ns),
				h.client.Get(ctx, client.ObjectKey{Name: user}, role),
				h.client.Get(ctx, client.ObjectKey{Name: user}, &rbacv1.ClusterRoleBinding{}))
			if err != nil || ns.Annotations[v1alpha1.ClusterUIDAnnotation] != string(made.UID) || role.Annotations[v1alpha1.NamespaceUIDAnnotation] != string(ns.UID) {
				return fmt.Errorf("%w: %v %v %w", errNotYet, ns.Annotations, role.Annotations, err)
			}
			return nil
		})
		h.delete(made)
		h.eventually("its rights to be revoked", func(ctx context.Context) error {
			if err := h.client.Get(ctx, client.ObjectKey{Name: user}, &rbacv1.ClusterRoleBinding{}); !apierrors.IsNotFound(err) {
				return errors.Join(errNotYet, err)
			}
			return nil
		})
	}
}

// The hub creates the deleted namespace of a cluster again, and meanwhile objects report that it is
// missing.
func TestDeletedNamespaceIsCreatedAgain(t *testing.T) {
	h := newTestHub(t)
	const name = "unhoused"
	h.cluster(name, v1alpha1.ClusterSpec{})
	home := h.namespace("unhoused")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterNamespacePrefix + name}}
	h.delete(ns) // it stays, being deleted: no controller of namespaces runs here
	h.create(configMap(home, "web", name))
	key := configKey(home, "web")
	h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonNamespaceMissing, ns.Name)
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
		t.Fatal(err)
	}
	before := ns.UID
	ns.Spec.Finalizers = nil
	if err := h.client.SubResource("finalize").Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	h.eventually("the namespace to be created again", func(ctx context.Context) error {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil || ns.UID == before {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	h.expectWorks(key, map[string]int32{name: 0})
	h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
}
