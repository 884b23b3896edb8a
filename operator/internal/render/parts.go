// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// The names of the workloads, which are those of their containers, images and ServiceAccounts.
const (
	nodeName       = "patchbayd"
	controllerName = "patchbay-controller"
	agentName      = "patchbay-agent"
)

// minReady is how long a node daemon must be ready before the next ones are replaced: one that crashes as soon as it is
// used must not get onto all nodes.
const minReady = 30 * time.Second

// defaultDeadline is the progress deadline of parts.
const defaultDeadline = 300 * time.Second

// renderer changes the objects of the manifests.
type renderer struct {
	installation *v1alpha1.Installation
	objects      []*unstructured.Unstructured
	plan         *Plan
	// accounts has the program for which each ServiceAccount is. Each default account stays reserved.
	accounts map[string]string
}

// part is what the parts of an Installation have in common.
type part struct {
	kind, name string
	path       *field.Path
	patch      *runtime.RawExtension
	logLevel   v1alpha1.LogLevel
	deadline   *int32
	// prepare changes the default template before the patch is merged, finish the merged one.
	prepare, finish func(*template)
	// check returns why the merged template cannot work.
	check func(*checker)
}

// parts changes the workloads, and returns the errors of all of them.
func (r *renderer) parts() error {
	spec := &r.installation.Spec
	path := field.NewPath("spec", "parts")
	node, nodeErr := r.render(&part{
		kind: "DaemonSet", name: nodeName, path: path.Child("node"),
		patch: spec.Parts.Node.Template, logLevel: spec.Parts.Node.LogLevel, deadline: spec.Parts.Node.ProgressDeadlineSeconds,
		finish: r.finishNode, check: checkNode,
	})
	controller, controllerErr := r.render(&part{
		kind: "Deployment", name: controllerName, path: path.Child("controller"),
		patch: spec.Parts.Controller.Template, logLevel: spec.Parts.Controller.LogLevel, deadline: spec.Parts.Controller.ProgressDeadlineSeconds,
		finish: r.finishMetrics, check: checkController,
	})
	err := errors.Join(checkDefaultDelegate(spec), nodeErr, controllerErr)
	if err == nil {
		err = checkPortsOfParts(node.pod, controller.pod, path.Child("controller", "template"))
	}
	if err == nil {
		err = errors.Join(r.updateNode(node), r.updateController(controller))
	}
	if spec.Parts.PlacementAgent.Enabled {
		err = errors.Join(err, r.agent(path.Child("placementAgent")))
	}
	return err
}

// checkDefaultDelegate requires that Pods without an annotation either get a file or do not start.
func checkDefaultDelegate(spec *v1alpha1.InstallationSpec) error {
	if spec.DefaultDelegate == "" || !isOff(spec.Features.NodeConfiguration) {
		return nil
	}
	return errors.New("spec.defaultDelegate: must be empty if features.nodeConfiguration is false: Pods without an annotation do not start then")
}

// checkPortsOfParts requires that the controller can run on a node beside the daemon.
func checkPortsOfParts(node, controller *corev1.PodTemplateSpec, at *field.Path) error {
	var problems []error
	used := hostPorts(node)
	for _, p := range hostPorts(controller) {
		i := slices.IndexFunc(used, func(other hostPort) bool { return other.key == p.key })
		if i >= 0 {
			problems = append(problems, fmt.Errorf("%s: must not have %s on the node's network, which container %s of the node daemon uses on every node",
				at.Child("spec", "containers").Key(p.container).Child("ports"), p.key, used[i].container))
		}
	}
	return errors.Join(problems...)
}

// agent renders the agent.
func (r *renderer) agent(path *field.Path) error {
	p := &r.installation.Spec.Parts.PlacementAgent
	if p.Cluster == "" {
		return fmt.Errorf("%s: must be the name of this cluster at its hub, because the agent is enabled", path.Child("cluster"))
	}
	agent, err := r.render(&part{
		kind: "Deployment", name: agentName, path: path, patch: p.Template, logLevel: p.LogLevel, deadline: p.ProgressDeadlineSeconds,
		prepare: func(t *template) { t.setEnv(agentName, "CLUSTER", p.Cluster) },
		check:   func(c *checker) { checkAgent(c, p.Cluster) },
	})
	if err != nil {
		return err
	}
	r.plan.Agent = &agent.Part
	return r.updateDeployment(agent, path, p.UpdateStrategy)
}

// rendered is a workload with its merged template.
type rendered struct {
	Part

	workload *unstructured.Unstructured
	pod      *corev1.PodTemplateSpec
}

// render merges the template of a part into its workload.
func (r *renderer) render(p *part) (*rendered, error) {
	workload, err := r.find(p.kind, p.name)
	if err != nil {
		return nil, err
	}
	original, err := templateOf(workload)
	if err != nil {
		return nil, err
	}
	selector, _, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if err != nil {
		return nil, fmt.Errorf("read selector of %s: %w", p.name, err)
	}
	t := &template{pod: original.DeepCopy()}
	r.prepare(t, p)
	defaults := t.pod.DeepCopy()
	if err := t.merge(p.patch); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path.Child("template"), err)
	}
	c := &checker{path: p.path.Child("template"), container: p.name, defaults: defaults, pod: t.pod, selector: selector, accounts: r.accounts}
	if err := c.run(p.check); err != nil {
		return nil, err
	}
	r.accounts[t.pod.Spec.ServiceAccountName] = p.name
	if cmp.Or(p.logLevel, r.installation.Spec.LogLevel) == v1alpha1.LogDebug {
		t.addArgument(p.name, "--debug")
	}
	if p.finish != nil {
		p.finish(t)
	}
	image := t.container(p.name).Image
	t.setAnnotation(ImageAnnotation, image)
	hash, err := t.store(workload)
	if err != nil {
		return nil, err
	}
	deadline := defaultDeadline
	if p.deadline != nil {
		deadline = time.Duration(*p.deadline) * time.Second
	}
	r.followServiceAccount(p.name, t.pod.Spec.ServiceAccountName)
	return &rendered{
		Part:     Part{Kind: p.kind, Name: p.name, Container: p.name, Image: image, Template: hash, Deadline: deadline, Account: t.pod.Spec.ServiceAccountName},
		workload: workload, pod: t.pod,
	}, nil
}

// prepare sets what the fields of the Installation say, so that the template can say otherwise.
func (r *renderer) prepare(t *template, p *part) {
	c := t.container(p.name)
	c.Image = version.Image(p.name)
	if registry := r.installation.Spec.Registry; registry != "" {
		c.Image = registry + "/" + p.name + ":" + version.String()
	}
	if policy := r.installation.Spec.ImagePullPolicy; policy != "" {
		c.ImagePullPolicy = policy
	}
	if p.prepare != nil {
		p.prepare(t)
	}
}

func (r *renderer) find(kind, name string) (*unstructured.Unstructured, error) {
	for _, o := range r.objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("the manifests have no %s %s", kind, name)
}

// finishNode switches features of the node daemon off, and names the CNI configuration of Pods without an annotation.
func (r *renderer) finishNode(t *template) {
	if file := r.installation.Spec.DefaultDelegate; file != "" {
		t.addArgument(nodeName, "--default-delegate="+file)
	}
	if isOff(r.installation.Spec.Features.NodeConfiguration) {
		t.addArgument(nodeName, "--node-configuration=false")
	}
	r.finishMetrics(t)
}

// finishMetrics removes the port for metrics if there shall be none.
func (r *renderer) finishMetrics(t *template) {
	if isOff(r.installation.Spec.Features.Metrics) {
		t.removeMetrics()
	}
}

// followServiceAccount gives the rights of a program to the account in its template.
func (r *renderer) followServiceAccount(name, account string) {
	for _, o := range r.objects {
		subjects, found, _ := unstructured.NestedSlice(o.Object, "subjects")
		if !found {
			continue
		}
		for _, s := range subjects {
			if subject, ok := s.(map[string]any); ok && subject["kind"] == "ServiceAccount" && subject["name"] == name {
				subject["name"] = account
			}
		}
		o.Object["subjects"] = subjects
	}
}

// updateNode sets the update strategy of the DaemonSet.
func (r *renderer) updateNode(node *rendered) error {
	strategy := r.installation.Spec.Parts.Node.UpdateStrategy
	node.OnDelete = strategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	value := map[string]any{"type": string(appsv1.OnDeleteDaemonSetStrategyType)}
	if !node.OnDelete {
		node.MaxUnavailable = intstr.FromString("10%")
		if strategy.MaxUnavailable != nil {
			node.MaxUnavailable = *strategy.MaxUnavailable
		}
		value = map[string]any{
			"type":          string(appsv1.RollingUpdateDaemonSetStrategyType),
			"rollingUpdate": map[string]any{"maxUnavailable": plain(node.MaxUnavailable)},
		}
	}
	node.MinReady = minReady
	r.plan.Node = &node.Part
	if err := unstructured.SetNestedField(node.workload.Object, int64(minReady/time.Second), "spec", "minReadySeconds"); err != nil {
		return err
	}
	return unstructured.SetNestedMap(node.workload.Object, value, "spec", "updateStrategy")
}

// LimitUnavailable sets how many nodes may be without a ready daemon, if the plan lets the DaemonSet replace Pods.
func (p *Plan) LimitUnavailable(limit intstr.IntOrString) error {
	if p.Node.OnDelete {
		return nil
	}
	for _, o := range p.Objects {
		if o.Phase == Node {
			return unstructured.SetNestedField(o.Object, plain(limit), "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
		}
	}
	return nil
}

// updateController sets replicas and update strategy of the controller.
func (r *renderer) updateController(controller *rendered) error {
	p := &r.installation.Spec.Parts.Controller
	if p.Replicas != nil {
		if err := unstructured.SetNestedField(controller.workload.Object, int64(*p.Replicas), "spec", "replicas"); err != nil {
			return err
		}
	}
	r.plan.Controller = &controller.Part
	return r.updateDeployment(controller, field.NewPath("spec", "parts", "controller"), p.UpdateStrategy)
}

// updateDeployment sets the update strategy and the deadline of a Deployment.
func (r *renderer) updateDeployment(d *rendered, path *field.Path, s v1alpha1.DeploymentUpdateStrategy) error {
	path = path.Child("updateStrategy")
	if s.Type == appsv1.RecreateDeploymentStrategyType {
		if s.MaxSurge != nil || s.MaxUnavailable != nil {
			return fmt.Errorf("%s: must have no maxSurge and no maxUnavailable with the type Recreate", path)
		}
		strategy := map[string]any{"type": string(s.Type)}
		if err := unstructured.SetNestedMap(d.workload.Object, strategy, "spec", "strategy"); err != nil {
			return err
		}
	} else if err := rollingUpdate(d, path, s); err != nil {
		return err
	}
	return unstructured.SetNestedField(d.workload.Object, int64(d.Deadline/time.Second), "spec", "progressDeadlineSeconds")
}

// rollingUpdate sets how many Pods may be missing, and how many may run in addition.
func rollingUpdate(d *rendered, path *field.Path, s v1alpha1.DeploymentUpdateStrategy) error {
	surge, unavailable := intstr.FromString("25%"), intstr.FromString("25%")
	if d.Name == controllerName {
		surge, unavailable = intstr.FromInt32(0), intstr.FromInt32(1)
	}
	if s.MaxSurge != nil {
		surge = *s.MaxSurge
	}
	if s.MaxUnavailable != nil {
		unavailable = *s.MaxUnavailable
	}
	if len(hostPorts(d.pod)) > 0 && !isZero(surge) {
		return fmt.Errorf("%s: must be 0, because the Pods use ports of the node: a Pod in addition has no room on a node that runs one: got %s", path.Child("maxSurge"), surge.String())
	}
	if isZero(surge) && isZero(unavailable) {
		return fmt.Errorf("%s: must not be 0 while maxSurge is 0: no Pod could be replaced", path.Child("maxUnavailable"))
	}
	return unstructured.SetNestedMap(d.workload.Object, map[string]any{
		"type":          string(appsv1.RollingUpdateDeploymentStrategyType),
		"rollingUpdate": map[string]any{"maxSurge": plain(surge), "maxUnavailable": plain(unavailable)},
	}, "spec", "strategy")
}

func isZero(v intstr.IntOrString) bool {
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&v, 100, true)
	return err == nil && scaled == 0
}

// plain returns the value as it is in JSON.
func plain(v intstr.IntOrString) any {
	if v.Type == intstr.Int {
		return int64(v.IntVal)
	}
	return v.StrVal
}
