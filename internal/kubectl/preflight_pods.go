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
	// preflightMaxFacts bounds the log of a Pod.
	preflightMaxFacts = 1 << 20
)

// nodePods reads nodes through a Pod on each.
type nodePods struct {
	kube     kubernetes.Interface
	warnings io.Writer

	image, binDir, confDir string
	timeout                time.Duration
}

// read returns the facts of the nodes by name, and results about nodes that could not be read. It removes what it
// has created, also when ctx ends.
func (p *nodePods) read(ctx context.Context, nodes []string) (facts map[string]*preflight.Facts, all []preflight.Result, err error) {
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	namespace, err := p.createNamespace(ctx)
	if namespace != "" {
		defer func() { err = errors.Join(err, p.remove(context.WithoutCancel(ctx), namespace)) }()
	}
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(p.warnings, "Reading %d nodes with Pods in namespace %s, which is removed afterwards\n", len(nodes), namespace)
	if err := p.createPods(ctx, namespace, nodes); err != nil {
		return nil, nil, err
	}
	pods, err := p.await(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	facts = map[string]*preflight.Facts{}
	for _, node := range nodes {
		f, err := p.readFacts(ctx, pods[node])
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err != nil {
			all = append(all, preflight.Result{Node: node, Check: "Pod", Level: preflight.Failure, Message: err.Error(), Remedy: p.advise(pods[node])})
			continue
		}
		facts[node] = f
	}
	return facts, all, nil
}

// createNamespace creates a namespace in which Pods may use the node's network and files, with an account. It
// returns the name of the namespace also if it could not create the account.
func (p *nodePods) createNamespace(ctx context.Context) (string, error) {
	ns, err := p.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: preflightName + "-",
		Labels:       map[string]string{preflightLabel: preflightName, "pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace for the Pods that read the nodes: %w: with --no-pods, no Pods run", err)
	}
	// The account default would exist only after a while.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: preflightName}, AutomountServiceAccountToken: new(false)}
	if _, err := p.kube.CoreV1().ServiceAccounts(ns.Name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return ns.Name, fmt.Errorf("create ServiceAccount in namespace %s: %w", ns.Name, err)
	}
	return ns.Name, nil
}

func (p *nodePods) createPods(ctx context.Context, namespace string, nodes []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(preflightRequests)
	for _, node := range nodes {
		group.Go(func() error {
			if _, err := p.kube.CoreV1().Pods(namespace).Create(ctx, p.pod(node), metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create Pod for node %s: %w: with --no-pods, no Pods run", node, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// pod returns the Pod that reads a node. It needs no scheduler and no Pod network. Root without capabilities reads
// what root may read, and can change nothing of the node.
func (p *nodePods) pod(node string) *corev1.Pod {
	const hostRoot = "/host"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-", Labels: map[string]string{preflightLabel: preflightName}},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSDefault,
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ServiceAccountName: preflightName, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			// The Pod ends even if the command is killed.
			ActiveDeadlineSeconds: new(max(int64(p.timeout.Seconds()), 1)), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "preflight", Image: p.image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"preflight", "--host-root=" + hostRoot, "--cni-bin-dir=" + p.binDir, "--cni-conf-dir=" + p.confDir},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: new(int64(0)), Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
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

// await returns the Pods by node as soon as each has ended or cannot start, or when the timeout is over.
func (p *nodePods) await(ctx context.Context, namespace string) (map[string]*corev1.Pod, error) {
	pods := map[string]*corev1.Pod{}
	err := wait.PollUntilContextTimeout(ctx, preflightPoll, p.timeout, true, func(ctx context.Context) (bool, error) {
		list, err := p.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away for a moment; the timeout ends the wait
		}
		done := true
		for i := range list.Items {
			pod := &list.Items[i]
			pods[pod.Spec.NodeName] = pod
			done = done && (ended(pod) || waitingReason(pod) != "")
		}
		return done, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return nil, fmt.Errorf("wait for the Pods that read the nodes: %w", err)
	}
	return pods, nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// waitingReason returns why a container cannot start, if waiting longer does not help.
func waitingReason(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		final := []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
		if w := s.State.Waiting; w != nil && slices.Contains(final, w.Reason) {
			return w.Reason + ": " + w.Message
		}
	}
	return ""
}

// readFacts reads what a Pod has printed.
func (p *nodePods) readFacts(ctx context.Context, pod *corev1.Pod) (*preflight.Facts, error) {
	if pod == nil {
		return nil, errors.New("the Pod that reads the node was deleted")
	}
	if reason := waitingReason(pod); reason != "" {
		return nil, errors.New("the Pod that reads the node cannot start: " + reason)
	}
	if !ended(pod) {
		return nil, fmt.Errorf("the Pod that reads the node did not end within %s: phase %s", p.timeout, cmp.Or(pod.Status.Phase, corev1.PodPending))
	}
	limit := int64(preflightMaxFacts)
	log, err := p.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{LimitBytes: &limit}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of the Pod that reads the node: %w", err)
	}
	if pod.Status.Phase == corev1.PodFailed {
		return nil, fmt.Errorf("the Pod that reads the node failed: %s %s", pod.Status.Reason, shorten(log))
	}
	facts := &preflight.Facts{}
	if err := json.Unmarshal(log, facts); err != nil {
		return nil, fmt.Errorf("the Pod that reads the node printed no facts: %s", shorten(log))
	}
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

// advise returns what to do about a Pod that has no facts.
func (p *nodePods) advise(pod *corev1.Pod) string {
	switch {
	case pod != nil && waitingReason(pod) != "":
		return fmt.Sprintf("Import the image %s on the node, or name another one with --image. With --no-pods, no Pods run.", p.image)
	case pod != nil && !ended(pod):
		return "Check with `kubectl describe node` that kubelet runs, give more time with --timeout, or leave the node out with --nodes."
	default:
		return "Check that --image is patchbayd of this version, and that the API server reaches kubelet."
	}
}

// remove removes the namespace. It removes the Pods first, because the removal of a namespace waits for every API of
// the cluster, and some may not answer as long as no Pod network works.
func (p *nodePods) remove(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, preflightCleanup)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, preflightPoll, true, func(ctx context.Context) (bool, error) {
		if err := p.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return false, nil //nolint:nilerr // tried again until the timeout
		}
		err := p.kube.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), nil
	})
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w: run `kubectl delete namespace %s`", namespace, err, namespace)
	}
	return nil
}
