// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/internal/preflight"
	"github.com/patchbay-cni/patchbay/internal/version"
)

const (
	// preflightLabel and preflightName mark the namespaces of preflights.
	preflightLabel = "app.kubernetes.io/name"
	preflightName  = "patchbay-preflight"
	// preflightPoll is how often the Pods are listed.
	preflightPoll = time.Second
	// preflightRequests is how many requests are sent at once.
	preflightRequests = 10
	// preflightCleanup bounds the removal of the namespace.
	preflightCleanup = 30 * time.Second
	// preflightMaxFacts bounds the log of a Pod, and preflightLogTimeout the time to read it.
	preflightMaxFacts   = 1 << 20
	preflightLogTimeout = 15 * time.Second
)

// nodePods reads nodes through a Pod on each.
type nodePods struct {
	kube     kubernetes.Interface
	warnings io.Writer

	// server is the address of the API server, for messages.
	server                                  string
	image, binDir, confDir, defaultDelegate string
	timeout                                 time.Duration
	// cleanup bounds the removal of the namespace; 0 for the default.
	cleanup time.Duration
}

// startedPod is a Pod that reads a node: its state when it was last seen, or why it could not be created.
type startedPod struct {
	node string
	// uid is that of the Pod that was created. Others in the namespace have no say.
	uid types.UID
	// last is nil if the Pod was deleted.
	last *corev1.Pod
	err  error
}

// read returns the facts of the nodes by name, and results about nodes that could not be read. It removes what it
// has created, also when ctx ends. The error is that of ctx.
func (p *nodePods) read(ctx context.Context, nodes []preflight.Node) (facts map[string]*preflight.Facts, all []preflight.Result, err error) {
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	const check = "Pods"
	// The client chooses the name, so that it also removes a namespace that was created without an answer.
	namespace := preflightName + "-" + rand.String(6)
	fmt.Fprintf(p.warnings, "Reading %d nodes of %s with Pods in namespace %s, which is removed afterwards\n", len(nodes), p.server, namespace)
	created, err := p.createNamespace(ctx, namespace)
	defer func() {
		if created {
			if removal := p.remove(context.WithoutCancel(ctx), namespace); removal != nil {
				all = append(all, preflight.Result{
					Check: check, Level: preflight.Warning, Message: removal.Error(), Remedy: fmt.Sprintf("Run `kubectl delete namespace %s`.", namespace),
				})
			}
		}
	}()
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, []preflight.Result{{Check: check, Level: preflight.Failure, Message: err.Error(), Remedy: "Run the preflight as a cluster administrator, or with --no-pods."}}, nil
	}
	pods := p.createPods(ctx, namespace, nodes)
	if err := p.createQuota(ctx, namespace, len(nodes)); err != nil {
		all = append(all, preflight.Result{Check: check, Level: preflight.Warning, Message: err.Error(), Remedy: "Nothing has to be done if only you create Pods in the namespace."})
	}
	if err := p.await(ctx, namespace, pods); err != nil {
		return nil, nil, err
	}
	facts, results := p.readAll(ctx, pods)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	return facts, append(all, results...), nil
}

// createNamespace creates a namespace in which Pods may use the node's network and files, with an account. It
// reports whether the namespace may exist.
func (p *nodePods) createNamespace(ctx context.Context, name string) (created bool, err error) {
	labels := map[string]string{preflightLabel: preflightName}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	_, err = p.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		// Without an answer of the API server that rejects the namespace, it may have been created.
		var status apierrors.APIStatus
		rejected := errors.As(err, &status) && status.Status().Code/100 == 4
		return !rejected, fmt.Errorf("create namespace %s for the Pods that read the nodes: %w", name, err)
	}
	// The account default would exist only after a while.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: preflightName}, AutomountServiceAccountToken: new(false)}
	if _, err := p.kube.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return true, fmt.Errorf("create ServiceAccount in namespace %s: %w", name, err)
	}
	return true, nil
}

// createPods creates a Pod for each node.
func (p *nodePods) createPods(ctx context.Context, namespace string, nodes []preflight.Node) []*startedPod {
	pods := make([]*startedPod, len(nodes))
	group := &errgroup.Group{}
	group.SetLimit(preflightRequests)
	for i, node := range nodes {
		pods[i] = &startedPod{node: node.Name}
		group.Go(func() error {
			created, err := p.kube.CoreV1().Pods(namespace).Create(ctx, p.pod(node), metav1.CreateOptions{})
			if err != nil {
				pods[i].err = fmt.Errorf("create the Pod that reads the node: %w", err)
			} else {
				pods[i].uid, pods[i].last = created.UID, created
			}
			return nil
		})
	}
	_ = group.Wait()
	return pods
}

// createQuota keeps others from using the privileges of the namespace for Pods of their own.
func (p *nodePods) createQuota(ctx context.Context, namespace string, pods int) error {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: preflightName},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI)}},
	}
	if _, err := p.kube.CoreV1().ResourceQuotas(namespace).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ResourceQuota in namespace %s: %w", namespace, err)
	}
	return nil
}

// pod returns the Pod that reads a node. It needs no scheduler and no Pod network. It asks for no CPU and memory, so
// that a full node accepts it. As root without capabilities it reads what root may read. The mount does not keep it
// from all changes: it could connect to the sockets of the node's programs, and an older runtime mounts the file
// systems below the root with their own options.
func (p *nodePods) pod(node preflight.Node) *corev1.Pod {
	const hostRoot = "/host"
	args := []string{"preflight", "--host-root=" + hostRoot, "--cni-bin-dir=" + p.binDir, "--cni-conf-dir=" + p.confDir, "--container-runtime=" + node.Runtime}
	if p.defaultDelegate != "" {
		args = append(args, "--default-delegate="+p.defaultDelegate)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-", Labels: map[string]string{preflightLabel: preflightName}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSDefault,
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ServiceAccountName: preflightName, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			// The Pod ends even if the command is killed.
			ActiveDeadlineSeconds: new(max(int64(p.timeout.Seconds()), 1)), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "preflight", Image: p.image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: args,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("0")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: new(int64(0)), Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					// Without this type, SELinux keeps the Pod from most of the node's files.
					SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				VolumeMounts: []corev1.VolumeMount{{
					Name: "host", MountPath: hostRoot, ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible),
				}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
}

// await waits until each Pod has ended or cannot start, or until the timeout is over, and updates their state.
func (p *nodePods) await(ctx context.Context, namespace string, pods []*startedPod) error {
	err := wait.PollUntilContextTimeout(ctx, preflightPoll, p.timeout, true, func(ctx context.Context) (bool, error) {
		list, err := p.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away for a moment; the timeout ends the wait
		}
		listed := map[types.UID]*corev1.Pod{}
		for i := range list.Items {
			listed[list.Items[i].UID] = &list.Items[i]
		}
		done := true
		for _, pod := range pods {
			if pod.err != nil {
				continue
			}
			pod.last = listed[pod.uid]
			done = done && (pod.last == nil || ended(pod.last) || waitingReason(pod.last) != "")
		}
		return done, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return fmt.Errorf("wait for the Pods that read the nodes: %w", err)
	}
	return nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// waitingReason returns why a container cannot start, if waiting longer does not help. After ErrImagePull, kubelet
// tries again once before ImagePullBackOff.
func waitingReason(pod *corev1.Pod) string {
	final := []string{"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
	if w := waiting(pod); w != nil && slices.Contains(final, w.Reason) {
		return w.Reason + ": " + w.Message
	}
	return ""
}

// waiting returns the state of a container that waits to start, or nil.
func waiting(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return s.State.Waiting
		}
	}
	return nil
}

// rejected reports whether kubelet has ended a Pod whose container did not end by itself. For example, a node may have
// no room for one more Pod.
func rejected(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil })
}

// readAll reads what the Pods have printed. Nodes without facts get a result.
func (p *nodePods) readAll(ctx context.Context, pods []*startedPod) (map[string]*preflight.Facts, []preflight.Result) {
	read := make([]*preflight.Facts, len(pods))
	results := make([]*preflight.Result, len(pods))
	group := &errgroup.Group{}
	group.SetLimit(preflightRequests)
	for i, pod := range pods {
		group.Go(func() error {
			read[i], results[i] = p.readFacts(ctx, pod)
			return nil
		})
	}
	_ = group.Wait()
	facts := map[string]*preflight.Facts{}
	var all []preflight.Result
	for i, pod := range pods {
		if results[i] != nil {
			all = append(all, *results[i])
		} else {
			facts[pod.node] = read[i]
		}
	}
	return facts, all
}

// readFacts reads what a Pod has printed, or returns the result about a Pod without facts.
func (p *nodePods) readFacts(ctx context.Context, pod *startedPod) (*preflight.Facts, *preflight.Result) {
	const read = "the Pod that reads the node"
	result := &preflight.Result{Node: pod.node, Check: "Pod", Level: preflight.Failure}
	var reason string
	if pod.last != nil {
		reason = waitingReason(pod.last)
	}
	switch {
	case pod.err != nil:
		result.Message, result.Remedy = pod.err.Error(), "Change the policy of the cluster that rejects the Pod, or leave the node out with --nodes. With --no-pods, no Pods run."
	case pod.last == nil:
		result.Message, result.Remedy = read+" was deleted", "Repeat the preflight, and find out what deletes Pods."
	case reason != "":
		result.Message = read + " cannot start: " + reason
		result.Remedy = fmt.Sprintf("Import the image %s on the node, or name another one with --image. With --no-pods, no Pods run.", p.image)
	case !ended(pod.last):
		result.Message = fmt.Sprintf("%s did not end within %s: phase %s", read, p.timeout, cmp.Or(pod.last.Status.Phase, corev1.PodPending))
		if w := waiting(pod.last); w != nil {
			result.Message += ", " + w.Reason + ": " + w.Message
		}
		result.Remedy = "Check with `kubectl describe node` that kubelet runs, give more time with --timeout, or leave the node out with --nodes."
	case rejected(pod.last):
		result.Level = preflight.Warning
		result.Message = fmt.Sprintf("kubelet did not run %s: %s: %s", read, cmp.Or(pod.last.Status.Reason, "no reason"), pod.last.Status.Message)
		result.Remedy = "Make room on the node, or give more time with --timeout, and repeat the preflight. Patchbay's daemon needs room, too."
	default:
		facts, err := p.readLog(ctx, pod.last)
		if err == nil {
			return facts, nil
		}
		result.Message, result.Remedy = err.Error(), "Check that --image is patchbayd of this version, and that the API server reaches kubelet."
	}
	return nil, result
}

// readLog reads the facts in the log of a Pod that has ended.
func (p *nodePods) readLog(ctx context.Context, pod *corev1.Pod) (facts *preflight.Facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, preflightLogTimeout)
	defer cancel()
	stream, err := p.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{LimitBytes: new(int64(preflightMaxFacts + 1))}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of the Pod that reads the node: %w", err)
	}
	defer func() { _ = stream.Close() }()
	log, err := io.ReadAll(io.LimitReader(stream, preflightMaxFacts+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the log of the Pod that reads the node: %w", err)
	case len(log) > preflightMaxFacts:
		return nil, fmt.Errorf("the Pod that reads the node printed more than %d bytes: %s", preflightMaxFacts, shorten(log))
	case pod.Status.Phase == corev1.PodFailed:
		return nil, fmt.Errorf("the Pod that reads the node failed: %s %s", pod.Status.Reason, shorten(log))
	}
	facts = &preflight.Facts{}
	if err := json.Unmarshal(log, facts); err != nil {
		return nil, fmt.Errorf("the Pod that reads the node printed no facts: %s", shorten(log))
	}
	facts.Truncate()
	if facts.Version != version.String() {
		facts.Errors = append(facts.Errors, fmt.Sprintf("image %s has version %s, and this command %s", p.image, facts.Version, version.String()))
	}
	return facts, nil
}

func shorten(log []byte) string {
	const most = 300
	if len(log) > most {
		log = log[:most]
	}
	return fmt.Sprintf("%q", log)
}

// remove removes the namespace. It removes the Pods first, because the removal of a namespace waits for every API of
// the cluster, and some may not answer as long as no Pod network works.
func (p *nodePods) remove(ctx context.Context, namespace string) error {
	fmt.Fprintf(p.warnings, "Removing namespace %s (Ctrl-C again leaves it)\n", namespace)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.cleanup, preflightCleanup))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, preflightPoll, true, func(ctx context.Context) (bool, error) {
		if err := p.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return false, nil //nolint:nilerr // tried again until the timeout
		}
		err := p.kube.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), nil
	})
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w", namespace, err)
	}
	return nil
}
