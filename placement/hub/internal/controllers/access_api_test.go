// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"errors"
	"fmt"
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
)

// Rights go with their Cluster, and come again with it.
func TestRightsGoWithTheCluster(t *testing.T) {
	b := newBench(t)
	const name = "rights"
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	ns := v1alpha1.ClusterNamespacePrefix + name
	rights := map[client.ObjectKey]client.Object{
		{Namespace: ns, Name: agentRole}:          &rbacv1.RoleBinding{},
		{Namespace: ns, Name: joinRole}:           &rbacv1.RoleBinding{},
		{Name: v1alpha1.ClusterUserPrefix + name}: &rbacv1.ClusterRoleBinding{},
	}
	are := func(there bool) {
		t.Helper()
		for key, o := range rights {
			b.eventually(fmt.Sprintf("%T %s to be there: %v", o, key, there), func(ctx context.Context) error {
				err := b.client.Get(ctx, key, o)
				if (err == nil) != there || client.IgnoreNotFound(err) != nil {
					return errors.Join(errNotYet, err)
				}
				return nil
			})
		}
	}
	b.create(cluster.DeepCopy())
	are(true)
	if err := b.client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	are(false)
	b.create(cluster.DeepCopy())
	are(true)
}

// What somebody deletes or changes of a cluster's rights comes again, and then nothing is written.
func TestRightsAreRepaired(t *testing.T) {
	b := newBench(t)
	const name = "repaired"
	b.cluster(name, v1alpha1.ClusterSpec{})
	ns, user := v1alpha1.ClusterNamespacePrefix+name, v1alpha1.ClusterUserPrefix+name
	objects := []client.Object{
		&rbacv1.Role{ObjectMeta: named(ns, agentRole)}, &rbacv1.Role{ObjectMeta: named(ns, joinRole)}, account(ns),
		&rbacv1.RoleBinding{ObjectMeta: named(ns, agentRole)}, &rbacv1.RoleBinding{ObjectMeta: named(ns, joinRole)},
		&rbacv1.ClusterRole{ObjectMeta: named("", user)}, &rbacv1.ClusterRoleBinding{ObjectMeta: named("", user)},
	}
	for _, o := range objects {
		before := bare(o)
		b.eventually(fmt.Sprintf("%T %s", o, o.GetName()), func(ctx context.Context) error {
			return b.client.Get(ctx, client.ObjectKeyFromObject(o), before)
		})
		b.delete(before)
		b.eventually(fmt.Sprintf("%T %s to come again", o, o.GetName()), func(ctx context.Context) error {
			return b.client.Get(ctx, client.ObjectKeyFromObject(o), bare(o))
		})
	}
	role := &rbacv1.Role{}
	key := client.ObjectKey{Namespace: ns, Name: agentRole}
	if err := b.client.Get(t.Context(), key, role); err != nil {
		t.Fatal(err)
	}
	want := role.Rules
	role.Rules = nil
	if err := b.client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	b.eventually("the Role to have its rules again", func(ctx context.Context) error {
		if err := b.client.Get(ctx, key, role); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(role.Rules, want) {
			return fmt.Errorf("%w: %+v", errNotYet, role.Rules)
		}
		return nil
	})
	inside, _, _ := bindings(name)
	inside.RoleRef.Name = joinRole // a binding of another Role has to be made anew
	b.delete(inside.DeepCopy())
	if err := b.client.Create(t.Context(), inside); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	b.eventually("the binding of its Role", func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(inside), inside); err != nil || inside.RoleRef.Name != agentRole {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	versions := func() (all []string) {
		for _, o := range objects {
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			all = append(all, o.GetResourceVersion())
		}
		return all
	}
	before := versions()
	time.Sleep(assignedPace + time.Second) // it has looked once more by then
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("resource versions: got %v, want %v as before", after, before)
	}
}

// A namespace that another client has made is not taken over, whatever its labels: they would get
// rights to what is sent there. An admin may hand it over.
func TestNamespacesOfOthersAreLeft(t *testing.T) {
	b := newBench(t)
	const name = "squatted"
	ns := &corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+name)}
	b.create(ns)
	b.create(&coordinationv1.Lease{ // so that the cluster looks alive
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: v1alpha1.HeartbeatLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32(3600))},
	})
	theirs := binding(ns.Name, agentRole)
	theirs.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}}
	b.create(theirs)
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	b.create(cluster)
	says := func(kind string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		b.eventually(kind+" to say "+reason, func(ctx context.Context) error {
			if err := b.client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c == nil || c.Status != status || c.Reason != reason {
				return fmt.Errorf("%w: %+v", errNotYet, c)
			}
			return nil
		})
	}
	says(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken)
	says(v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNamespaceTaken)
	home := b.namespace("squatted")
	b.create(configMap(home, "web", name))
	b.says(configKey(home, "web"), v1alpha1.ConditionPlaced, v1alpha1.ReasonWaitingForCluster, name)
	b.runs(configKey(home, "web"), map[string]int32{})
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: named(ns.Name, agentRole)}, account(ns.Name), binding(ns.Name, joinRole),
		&rbacv1.ClusterRole{ObjectMeta: named("", v1alpha1.ClusterUserPrefix+name)},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", v1alpha1.ClusterUserPrefix+name)},
	} {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: got %v, want none", o, o.GetName(), err)
		}
	}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("the binding of somebody else: %v", err)
	}
	b.delete(theirs)
	b.mark(ns, v1alpha1.ClusterUIDAnnotation, string(cluster.UID))
	says(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	says(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Heartbeat")
	b.runs(configKey(home, "web"), map[string]int32{name: 0})
}

// An earlier version has only labelled its namespaces. They stay the hub's, also when their
// Cluster is made again.
func TestNamespacesOfEarlierHubsStay(t *testing.T) {
	b := newBench(t)
	const name = "upgraded"
	user := v1alpha1.ClusterUserPrefix + name
	b.create(&rbacv1.ClusterRole{ObjectMeta: named("", user)})
	b.create(&corev1.Namespace{ObjectMeta: named("", v1alpha1.ClusterNamespacePrefix+name)})
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	for range 2 {
		made := cluster.DeepCopy()
		b.create(made)
		b.eventually("the namespace to be this Cluster's", func(ctx context.Context) error {
			ns, role := &corev1.Namespace{}, &rbacv1.ClusterRole{}
			err := errors.Join(b.client.Get(ctx, client.ObjectKey{Name: v1alpha1.ClusterNamespacePrefix + name}, ns),
				b.client.Get(ctx, client.ObjectKey{Name: user}, role),
				b.client.Get(ctx, client.ObjectKey{Name: user}, &rbacv1.ClusterRoleBinding{}))
			if err != nil || ns.Annotations[v1alpha1.ClusterUIDAnnotation] != string(made.UID) || role.Annotations[v1alpha1.NamespaceUIDAnnotation] != string(ns.UID) {
				return fmt.Errorf("%w: %v %v %w", errNotYet, ns.Annotations, role.Annotations, err)
			}
			return nil
		})
		b.delete(made)
		b.eventually("its rights to be taken", func(ctx context.Context) error {
			if err := b.client.Get(ctx, client.ObjectKey{Name: user}, &rbacv1.ClusterRoleBinding{}); !apierrors.IsNotFound(err) {
				return errors.Join(errNotYet, err)
			}
			return nil
		})
	}
}

// A cluster's namespace that somebody deletes comes again, and meanwhile objects say what they
// wait for.
func TestDeletedNamespaceComesAgain(t *testing.T) {
	b := newBench(t)
	const name = "unhoused"
	b.cluster(name, v1alpha1.ClusterSpec{})
	home := b.namespace("unhoused")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterNamespacePrefix + name}}
	b.delete(ns) // it stays, being deleted: no controller of namespaces runs here
	b.create(configMap(home, "web", name))
	key := configKey(home, "web")
	b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonNamespaceMissing, ns.Name)
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil {
		t.Fatal(err)
	}
	before := ns.UID
	ns.Spec.Finalizers = nil
	if err := b.client.SubResource("finalize").Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	b.eventually("the namespace to come again", func(ctx context.Context) error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil || ns.UID == before {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	b.runs(key, map[string]int32{name: 0})
	b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
}
