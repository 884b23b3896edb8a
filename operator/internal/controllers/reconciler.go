// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/rollout"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

// checkInterval is how often everything is compared again, although watches report each change.
const checkInterval = 10 * time.Minute

// anotherInterval is how often the operator looks whether another installation, or an object that is being deleted, is gone.
const anotherInterval = 15 * time.Second

// conflictDelay is how long the cache may take to get the Installation as it was written last.
const conflictDelay = 100 * time.Millisecond

// Reconciler installs Patchbay as the Installation says. It handles one request at a time.
type Reconciler struct {
	// Cache has the Installation, the Pods and workloads of Patchbay, and the metadata of what was applied.
	Cache client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Status writes the status of the Installation.
	Status client.SubResourceWriter
	// Applier writes everything else.
	Applier *apply.Applier
	// Uninstaller removes everything when the Installation is deleted.
	Uninstaller *uninstall.Uninstaller
	// Events records changes of conditions.
	Events EventRecorder
	// Now is the clock.
	Now func() time.Time

	// plan is that of the Installation with this UID and generation. To compute it takes some 10 ms, and each
	// change of a Pod needs it.
	plan       *render.Plan
	uid        types.UID
	generation int64
	// missingSince is since when nodes have no Pod of the node daemon.
	missingSince time.Time
	// heldSince is since when the node daemon's template is held back.
	heldSince time.Time
	// deniedSince is since when the removal of finalizers is denied.
	deniedSince time.Time
}

// EventRecorder records an Event on an object.
type EventRecorder interface {
	Event(of *v1alpha1.Installation, kind, reason, message string)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	i := &v1alpha1.Installation{}
	if err := r.Cache.Get(ctx, request.NamespacedName, i); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if i.DeletionTimestamp != nil {
		return r.uninstall(ctx, i)
	}
	found := &findings{}
	err := r.install(ctx, i, found)
	next := found.status(i, metav1.NewTime(r.Now()))
	writeErr := r.writeStatus(ctx, i, next)
	if apierrors.IsConflict(writeErr) { // the cache has an earlier Installation
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	if errors.Is(err, errAnother) || errors.Is(err, errEnding) { // no event tells when what it waits for is gone
		return reconcile.Result{RequeueAfter: anotherInterval}, writeErr
	}
	if err := cmp.Or(err, writeErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: found.recheck()}, nil
}

// install applies the objects of the Installation in their order, and records what it finds. Its error is one
// that may go away, so that it is tried again.
func (r *Reconciler) install(ctx context.Context, i *v1alpha1.Installation, found *findings) error {
	plan := r.render(i, found)
	if plan == nil {
		return nil
	}
	if err := cmp.Or(r.checkAlone(ctx, plan), r.checkAccounts(ctx, plan, found)); err != nil {
		found.applyErr = err
		return err
	}
	if err := r.Uninstaller.Protect(ctx, i); err != nil {
		found.applyErr = err
		return err
	}
	pods, err := r.pods(ctx)
	if err == nil {
		err = r.checkDaemonSet(ctx, plan, pods[plan.Node.Name])
	}
	if err != nil {
		found.applyErr = err
		return err
	}
	templates, err := r.templates(ctx, plan)
	if err != nil {
		found.applyErr = err
		return err
	}
	plan = plan.WithAccounts(accounts(plan, pods, templates))
	node := r.input(plan.Node, pods)
	node.MissingSince = r.missingSince
	if !hasImage(plan.Controller, templates[plan.Controller.Name]) {
		found.outdated = rollout.Outdated(node)
	}
	if err := plan.LimitUnavailable(rollout.Limit(node)); err != nil {
		return err
	}
	found.unsettled = r.unsettled(node, templates[plan.Node.Name])
	if found.applyErr = r.apply(ctx, plan, found); found.applyErr != nil {
		return found.applyErr
	}
	return r.observe(ctx, plan, pods, found)
}

// unsettled returns the nodes for which a new template of the node daemon waits, so that it begins with one node.
func (r *Reconciler) unsettled(node *rollout.Input, present *corev1.PodTemplateSpec) []string {
	if node.Part.OnDelete || present == nil || present.Annotations[render.TemplateAnnotation] == node.Part.Template {
		r.heldSince = time.Time{}
		return nil
	}
	nodes := rollout.Unsettled(node)
	if len(nodes) < 2 {
		return nil // it may be a moment between two Pods, so the time goes on
	}
	if r.heldSince.IsZero() {
		r.heldSince = node.Now
	}
	if node.Now.Sub(r.heldSince) >= maxHold {
		return nil
	}
	return nodes
}

// maxHold is how long a new template may wait. The roll-out of the present one is limited to one node meanwhile.
const maxHold = 2 * time.Minute

// hold limits the roll-out of the present template while a new one waits: Kubernetes must not go on with many nodes.
func (r *Reconciler) hold(ctx context.Context, o render.Object) error {
	ds := &appsv1.DaemonSet{}
	if exists, err := r.get(ctx, o, ds); err != nil || !exists {
		return err
	}
	s := ds.Spec.UpdateStrategy
	if s.Type != appsv1.RollingUpdateDaemonSetStrategyType || s.RollingUpdate != nil && s.RollingUpdate.MaxUnavailable != nil && *s.RollingUpdate.MaxUnavailable == intstr.FromInt32(1) {
		return nil
	}
	return r.Applier.LimitToOne(ctx, o)
}

// templates returns the present templates of the parts, by name. One whose workload does not exist is not there.
func (r *Reconciler) templates(ctx context.Context, plan *render.Plan) (map[string]*corev1.PodTemplateSpec, error) {
	templates := map[string]*corev1.PodTemplateSpec{}
	for _, o := range plan.Objects {
		switch o.GetKind() {
		case "DaemonSet":
			ds := &appsv1.DaemonSet{}
			if exists, err := r.get(ctx, o, ds); err != nil {
				return nil, err
			} else if exists {
				templates[o.GetName()] = &ds.Spec.Template
			}
		case "Deployment":
			d := &appsv1.Deployment{}
			if exists, err := r.get(ctx, o, d); err != nil {
				return nil, err
			} else if exists {
				templates[o.GetName()] = &d.Spec.Template
			}
		}
	}
	return templates, nil
}

// accounts returns with which accounts each part runs: those of its Pods, and that of its workload, which may make
// more of them. Whoever can create Pods in the namespace of the programs can use their accounts anyway.
func accounts(plan *render.Plan, pods map[string][]*corev1.Pod, templates map[string]*corev1.PodTemplateSpec) map[string][]string {
	used := map[string][]string{}
	for _, part := range plan.Parts() {
		for _, pod := range pods[part.Name] {
			if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				used[part.Name] = append(used[part.Name], pod.Spec.ServiceAccountName)
			}
		}
		if t := templates[part.Name]; t != nil {
			used[part.Name] = append(used[part.Name], t.Spec.ServiceAccountName)
		}
	}
	return used
}

// hasImage reports whether a workload has the part's image already, so that a change of it is no upgrade.
func hasImage(part *render.Part, t *corev1.PodTemplateSpec) bool {
	return t != nil && rollout.ImageOf(part, t.Annotations, &t.Spec) == part.Image
}

// render returns the plan of the Installation, or nil if the spec cannot work.
func (r *Reconciler) render(i *v1alpha1.Installation, found *findings) *render.Plan {
	// A newer operator may have come since the plan was computed.
	if err := checkVersion(i, version.String()); err != nil {
		found.invalid = err
		return nil
	}
	if r.plan == nil || r.uid != i.UID || r.generation != i.Generation {
		r.plan, found.invalid = render.New(i)
		r.uid, r.generation, r.missingSince, r.heldSince = i.UID, i.Generation, time.Time{}, time.Time{} // a new spec has its own deadlines
	}
	return r.plan
}

// rollbackError means that a newer version than the operator's has installed Patchbay.
type rollbackError struct{ installed, own string }

// Error implements error.
func (e *rollbackError) Error() string {
	return fmt.Sprintf("spec.version: must be %s, the version of this operator, if you want to go back from %s, which is installed: got none. "+
		"Nothing is changed until then. Only one operator must run. docs/operator.md has the steps", e.own, e.installed)
}

// checkVersion fails if a newer version is installed, and the user has not chosen the operator's. So an earlier
// operator that still runs does not undo the work of its successor.
func checkVersion(i *v1alpha1.Installation, own string) error {
	installed, installedErr := utilversion.ParseSemantic(tagOf(i.Status.Version))
	current, ownErr := utilversion.ParseSemantic(tagOf(own))
	// Builds without a version have no order, nor have those of one tag.
	if installedErr == nil && ownErr == nil && i.Spec.Version == "" && current.LessThan(installed) {
		return &rollbackError{installed: i.Status.Version, own: own}
	}
	return nil
}

// tagOf returns the tag of a version that `git describe --dirty` has made for a build after the tag, such as v0.1.0 of
// v0.1.0-12-g1a2b3c4. As a semantic version, such a build counts as one before its tag.
func tagOf(version string) string { return sinceTag.ReplaceAllString(version, "") }

// sinceTag is the number of commits since the tag with the commit, and that there were changes beside them.
var sinceTag = regexp.MustCompile(`(-[0-9]+-g[0-9a-f]+)?(-dirty)?$`)

// errAnother means that Patchbay is installed in another namespace.
var errAnother = errors.New("another installation")

// checkAlone fails if Patchbay is installed in another namespace: the ServiceAccounts in the binding of the node daemon's
// rights, whose name is the same for all, show it. Users and groups in it have no namespace.
func (r *Reconciler) checkAlone(ctx context.Context, plan *render.Plan) error {
	for _, o := range plan.Objects {
		if o.GetKind() != "ClusterRoleBinding" || o.GetName() != plan.Node.Name || r.Applier.Has(o) {
			continue
		}
		binding := &rbacv1.ClusterRoleBinding{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), binding)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ClusterRoleBinding %s: %w", o.GetName(), err)
		}
		if apply.IsApplied(binding) {
			return nil // somebody has changed it since, which is drift
		}
		for _, s := range binding.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != render.Namespace {
				return fmt.Errorf("%w: ClusterRoleBinding %s must be for namespace %s: got %s. Uninstall Patchbay there first, or delete the Installation",
					errAnother, o.GetName(), render.Namespace, s.Namespace)
			}
		}
	}
	return nil
}

// checkAccounts finds the ServiceAccounts that the user has to create. Without one, Kubernetes makes no Pod, and the
// DaemonSet's Events are the only place that says so.
func (r *Reconciler) checkAccounts(ctx context.Context, plan *render.Plan, found *findings) error {
	isOwn := func(p *render.Part) bool { return p.Account == p.Name }
	parts := slices.DeleteFunc(plan.Parts(), isOwn)
	if len(parts) == 0 {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	if err := r.Live.List(ctx, list, client.InNamespace(render.Namespace)); err != nil {
		return fmt.Errorf("list ServiceAccounts: %w", err)
	}
	for _, part := range parts {
		if !slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.Name == part.Account }) {
			found.missingAccounts = append(found.missingAccounts, fmt.Sprintf("%s of %s", part.Account, part.Name))
		}
	}
	return nil
}

// errEnding means that the DaemonSet is being deleted.
var errEnding = errors.New("the DaemonSet is being deleted")

// checkDaemonSet fails while the DaemonSet is being deleted, in the foreground after its Pods. Kubernetes starts no Pod of
// it, whatever is applied. It also withdraws the request of an uninstallation that was given up.
func (r *Reconciler) checkDaemonSet(ctx context.Context, plan *render.Plan, pods []*corev1.Pod) error {
	for _, o := range plan.Objects {
		if o.GetKind() != "DaemonSet" || o.GetName() != plan.Node.Name {
			continue
		}
		ds := &appsv1.DaemonSet{}
		exists, err := r.get(ctx, o, ds)
		_, isRequested := ds.Annotations[v1alpha1.CleanUpAnnotation]
		switch {
		case err != nil || !exists:
			return err
		case ds.DeletionTimestamp != nil:
			return ending(ds, pods)
		case isRequested:
			return r.Uninstaller.WithdrawCleanUp(ctx)
		}
		return nil
	}
	return nil
}

// ending names the Pods that a DaemonSet in deletion waits for.
func ending(ds *appsv1.DaemonSet, pods []*corev1.Pod) error {
	var names []string
	for _, pod := range pods {
		names = append(names, fmt.Sprintf("%s on node %s", pod.Name, pod.Spec.NodeName))
	}
	slices.Sort(names)
	return fmt.Errorf("%w: %s/%s, whose finalizers are %s, must be gone before it is applied again. Its Pods are: %s. If a node is off, delete its Pod with --force",
		errEnding, ds.Namespace, ds.Name, strings.Join(ds.Finalizers, ", "), cmp.Or(attachments.Names(names), "none"))
}

// apply applies the objects. While an upgrade of the controller waits for nodes with an older daemon, it applies nothing
// from the controller on, and removes nothing. It begins with templates that the API server rejects. An object that is
// being deleted is a finding, and no error.
func (r *Reconciler) apply(ctx context.Context, plan *render.Plan, found *findings) error {
	for _, o := range plan.Objects {
		if o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment" {
			if err := r.Applier.Check(ctx, o); err != nil {
				return err
			}
		}
	}
	for _, o := range plan.Objects {
		if len(found.outdated) > 0 && o.Phase >= render.Controller {
			return nil
		}
		if len(found.unsettled) > 0 && o.Phase == render.Node {
			if err := r.hold(ctx, o); err != nil {
				return err
			}
			continue
		}
		err := r.Applier.Apply(ctx, o)
		if terminating, ok := errors.AsType[*apply.TerminatingError](err); ok {
			// The deletion of a definition ends only if the node daemons run: they remove the finalizers of its objects.
			found.terminating = append(found.terminating, terminating.Error())
		} else if err != nil {
			return err
		}
	}
	return r.Applier.Prune(ctx, plan)
}

// pods returns the Pods of all programs by the name of their workload. They belong to the cache.
func (r *Reconciler) pods(ctx context.Context) (map[string][]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := r.Cache.List(ctx, list, client.InNamespace(render.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	pods := map[string][]*corev1.Pod{}
	for i := range list.Items {
		name := list.Items[i].Labels["app.kubernetes.io/name"]
		pods[name] = append(pods[name], &list.Items[i])
	}
	return pods, nil
}

// input returns what the progress of a part is computed from.
func (r *Reconciler) input(part *render.Part, pods map[string][]*corev1.Pod) *rollout.Input {
	return &rollout.Input{Part: part, Pods: pods[part.Name], Now: r.Now()}
}

// observe records the progress of the parts, as the cache has it: it counts only if the cache has seen the
// last write.
func (r *Reconciler) observe(ctx context.Context, plan *render.Plan, pods map[string][]*corev1.Pod, found *findings) error {
	for _, o := range plan.Objects {
		switch {
		case o.GetKind() == "DaemonSet":
			ds := &appsv1.DaemonSet{}
			exists, err := r.get(ctx, o, ds)
			if err != nil {
				return err
			}
			in := r.input(plan.Node, pods)
			in.Generation = r.Applier.Generation(o)
			in.MissingSince = r.missingSince
			found.node = rollout.OfDaemonSet(in, only(exists, ds))
			r.missingSince = found.node.MissingSince
		case o.GetKind() == "Deployment":
			d := &appsv1.Deployment{}
			exists, err := r.get(ctx, o, d)
			if err != nil {
				return err
			}
			part, progress := plan.Controller, &found.controller
			if o.Phase == render.Agent {
				part, progress = plan.Agent, &found.agent
			}
			in := r.input(part, pods)
			in.Generation = r.Applier.Generation(o)
			*progress = rollout.OfDeployment(in, only(exists, d))
		}
	}
	return nil
}

func (r *Reconciler) get(ctx context.Context, o render.Object, into client.Object) (exists bool, err error) {
	err = r.Cache.Get(ctx, client.ObjectKeyFromObject(o), into)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return err == nil, nil
}

// only returns nil for an object that does not exist.
func only[T any](exists bool, o *T) *T {
	if !exists {
		return nil
	}
	return o
}

// writeStatus writes a status that has changed, and records an Event for each condition that has.
func (r *Reconciler) writeStatus(ctx context.Context, i *v1alpha1.Installation, next *v1alpha1.InstallationStatus) error {
	if equality.Semantic.DeepEqual(&i.Status, next) {
		return nil
	}
	before := i.Status
	i = i.DeepCopy()
	i.Status = *next
	if err := r.Status.Update(ctx, i); err != nil {
		return fmt.Errorf("write status of Installation %s: %w", i.Name, err)
	}
	for _, c := range changedConditions(before.Conditions, next.Conditions) {
		kind := corev1.EventTypeNormal
		if c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonProgressing && c.Reason != v1alpha1.ReasonWaitingForNode {
			kind = corev1.EventTypeWarning
		}
		r.Events.Event(i, kind, c.Reason, c.Type+": "+c.Message)
	}
	if was, is := before.Parts.Node, next.Parts.Node; was != nil && is != nil && is.Total < was.Total {
		r.Events.Event(i, corev1.EventTypeWarning, v1alpha1.ReasonFewerNodes, fmt.Sprintf("the node daemon is for %d nodes, and was for %d before", is.Total, was.Total))
	}
	return nil
}
