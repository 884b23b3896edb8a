// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/preflight"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// fakeKubelet does what kubelets do with the Pods of a preflight: it runs them, here with a given status, and serves
// their logs. The API server connects to it.
type fakeKubelet struct {
	env *apitest.Env
	// status by node. A node without a status does not start its Pod.
	status map[string]corev1.PodStatus
	// logs are what the Pods of a node print.
	logs map[string]string
	// seen are the Pods that kubelet has seen.
	seen chan *corev1.Pod
}

// start creates the Nodes, and runs their kubelet until the test ends.
func (k *fakeKubelet) start(t *testing.T, nodes ...string) {
	t.Helper()
	k.seen = make(chan *corev1.Pod, 100)
	server := httptest.NewTLSServer(http.HandlerFunc(k.serveLogs))
	t.Cleanup(server.Close)
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the kubelet listens on %s, want a TCP port", server.Listener.Addr())
	}
	for _, name := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := k.env.Client.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.env.Client.Delete(context.Background(), n) })
		n.Status = corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(address.Port)}},
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", KernelVersion: "6.1.0", KubeletVersion: "v1.35.0", ContainerRuntimeVersion: "containerd://1.7.2",
			},
		}
		if err := k.env.Client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.run(ctx, nodes) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !wait.Interrupted(err) {
			t.Error(err)
		}
	})
}

// run gives each Pod its status, and removes the Pods that are deleted.
func (k *fakeKubelet) run(ctx context.Context, nodes []string) error {
	seen := map[string]bool{}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := k.env.Client.List(ctx, &pods, client.MatchingLabels{preflightLabel: preflightName}); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if !slices.Contains(nodes, pod.Spec.NodeName) {
				continue
			}
			if !seen[pod.Name] {
				seen[pod.Name] = true
				k.seen <- pod.DeepCopy()
			}
			if err := k.sync(ctx, pod); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return false, err
			}
		}
		return false, nil
	})
}

func (k *fakeKubelet) sync(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return k.env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	status, ok := k.status[pod.Spec.NodeName]
	if !ok || len(pod.Status.ContainerStatuses) > 0 || ended(pod) {
		return nil
	}
	pod.Status = status
	return k.env.Client.Status().Update(ctx, pod)
}

// serveLogs answers /containerLogs/NAMESPACE/POD/CONTAINER.
func (k *fakeKubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	pod := &corev1.Pod{}
	if len(parts) < 5 || parts[1] != "containerLogs" || k.env.Client.Get(r.Context(), client.ObjectKey{Namespace: parts[2], Name: parts[3]}, pod) != nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(k.logs[pod.Spec.NodeName]))
}

// runPreflight runs the verb as the admin.
func runPreflight(ctx context.Context, env *apitest.Env, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := Run(ctx, append([]string{"preflight", "--kubeconfig=" + env.ControlPlane.AdminKubeconfig()}, args...), &stdout, &stderr)
	return stdout.String(), err
}

// checkRemoved checks that the namespace of a preflight goes.
func checkRemoved(t *testing.T, env *apitest.Env, namespace string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		err := env.Client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Errorf("namespace %s of the preflight is not removed: %v", namespace, err)
	}
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func nodeFacts(mtu int) *preflight.Facts {
	f := &preflight.Facts{
		Version: version.String(), Kernel: "6.1.0", Options: map[string]preflight.Availability{}, IPv6: true, MaxNetworkNamespaces: 100,
		NICs: []preflight.NIC{{Name: "ens4", MTU: mtu, State: "up"}},
		CNI: preflight.CNIFacts{
			BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d", HasBinDir: true, HasConfDir: true, Files: []string{"10-flannel.conflist"}, Chosen: "10-flannel.conflist",
		},
	}
	for _, o := range preflight.KernelOptions() {
		f.Options[o.Name] = preflight.BuiltIn
	}
	return f
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	env := apitest.StartWithControllers(t)
	in := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "preflight", State: state}}
	}
	waiting := func(reason string) []corev1.ContainerStatus {
		return in(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such host"}})
	}
	crashed := in(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}})
	k := &fakeKubelet{
		env: env,
		status: map[string]corev1.PodStatus{
			"pre-a": {Phase: corev1.PodSucceeded}, "pre-b": {Phase: corev1.PodSucceeded},
			"pre-pull":  {Phase: corev1.PodPending, ContainerStatuses: waiting("ImagePullBackOff")},
			"pre-retry": {Phase: corev1.PodPending, ContainerStatuses: waiting("ErrImagePull")},
			"pre-crash": {Phase: corev1.PodFailed, ContainerStatuses: crashed},
			"pre-full":  {Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "Node didn't have enough resource: pods"},
			"pre-other": {Phase: corev1.PodSucceeded}, "pre-large": {Phase: corev1.PodSucceeded},
		},
		logs: map[string]string{
			"pre-a": marshal(t, nodeFacts(9000)), "pre-b": marshal(t, nodeFacts(1500)), "pre-crash": "patchbayd: out of order", "pre-other": "hello",
			"pre-large": strings.Repeat("x", 2*preflightMaxFacts),
		},
	}
	nodes := []string{"pre-a", "pre-b", "pre-pull", "pre-retry", "pre-crash", "pre-full", "pre-other", "pre-large", "pre-off"}
	k.start(t, nodes...)
	out, err := runPreflight(t.Context(), env, "--nodes="+strings.Join(nodes, ","), "--timeout=5s", "--nics=ens4")
	if err == nil || !strings.Contains(err.Error(), "checks failed: Pod") {
		t.Errorf("got error %v, want one about the Pods", err)
	}
	for want, reason := range map[string]string{
		"OK        pre-a, pre-b":                               "equal results of several nodes are one row",
		"NIC ens4 has 1500 on pre-b, 9000 on pre-a":            "nodes are compared with each other",
		"cannot start: ImagePullBackOff: no such host":         "the image cannot be pulled",
		"within 5s: phase Pending, ErrImagePull: no such host": "kubelet tries again to pull the image",
		"WARNING: Pod on pre-full: kubelet did not run the Po": "a healthy node may have no room for one more Pod",
		"OutOfpods: Node didn't have enough resource: pods":    "kubelet's reason is reported",
		"printed more than 1048576 bytes":                      "a node cannot fill the memory of the command",
		"Import the image patchbay.local/patchbayd:devel":      "a cluster without a registry needs the image on each node",
		`the node failed:  "patchbayd: out of order"`:          "the Pod's log names its error",
		`printed no facts: "hello"`:                            "the image is not patchbayd",
		"did not end within 5s: phase Pending":                 "kubelet does not start the Pod",
		"the cluster has the CustomResourceDefinitions clus":   "the API server of this test has Patchbay's definitions",
		"all kinds that Patchbay uses are served":              "the API server is checked",
		"you may create all objects of an installation":        "the admin may install Patchbay",
		"FAILURE: Pod on pre-pull: the Pod that reads the nod": "the advice names the node",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s: want %q in:\n%s", reason, want, out)
		}
	}
	pod := <-k.seen
	if pod.Spec.Containers[0].SecurityContext.Capabilities.Drop[0] != "ALL" || pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken || len(pod.Spec.Volumes) != 1 ||
		!pod.Spec.Containers[0].Resources.Requests.Cpu().IsZero() || !pod.Spec.Containers[0].Resources.Requests.Memory().IsZero() {
		t.Errorf("got Pod %+v, want one without capabilities, token, requests and volumes beside the node's files", pod.Spec)
	}
	checkRemoved(t, env, pod.Namespace)
}

// The end of the context is what Ctrl-C causes.
func TestPreflightInterrupted(t *testing.T) {
	t.Parallel()
	env := apitest.StartWithControllers(t)
	k := &fakeKubelet{env: env}
	k.start(t, "pre-stopped")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := runPreflight(ctx, env, "--nodes=pre-stopped")
		done <- err
	}()
	pod := <-k.seen
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v, want the error of the interruption", err)
	}
	checkRemoved(t, env, pod.Namespace)
}

// The oldest supported Kubernetes accepts the Pods, and keeps the field that makes mounts read-only recursively.
func TestPreflightPodOnOldestKubernetes(t *testing.T) {
	t.Parallel()
	env := apitest.StartOldest(t)
	kube, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := &nodePods{kube: kube, warnings: io.Discard, image: "patchbayd", binDir: "/opt/cni/bin", confDir: "/etc/cni/net.d", timeout: time.Minute}
	const namespace = preflightName + "-oldest"
	if _, err := p.createNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if created := p.createPods(t.Context(), namespace, []preflight.Node{{Name: "pre-oldest"}}); created[0].err != nil {
		t.Fatal(created[0].err)
	}
	if err := p.createQuota(t.Context(), namespace, 1); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := env.Client.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil || len(pods.Items) != 1 {
		t.Fatalf("got %d Pods, %v, want one", len(pods.Items), err)
	}
	mount := pods.Items[0].Spec.Containers[0].VolumeMounts[0]
	if !mount.ReadOnly || mount.RecursiveReadOnly == nil || *mount.RecursiveReadOnly != corev1.RecursiveReadOnlyIfPossible {
		t.Errorf("got mount %+v, want one that is read-only, recursively if possible", mount)
	}
	if err := p.remove(t.Context(), namespace); err != nil {
		t.Error(err)
	}
}

func TestPreflightWithoutPods(t *testing.T) {
	t.Parallel()
	env := apitest.New(t) // one test only: the verb reads objects of the whole cluster
	k := &fakeKubelet{env: env}
	k.start(t, "pre-api")
	url := "https://127.0.0.1:1"
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium-config"}, Data: map[string]string{"cni-exclusive": "true"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preflightName + "-killed", Labels: map[string]string{preflightLabel: preflightName}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "patchbay"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhookOf(admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "gone", Name: "gone"}})},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhookOf(admissionregistrationv1.WebhookClientConfig{URL: &url})},
		},
	} {
		if err := env.Client.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	out, err := runPreflight(t.Context(), env, "--no-pods", "--output=json")
	if err == nil {
		t.Error("got no error, want one: Cilium is exclusive")
	}
	var answer struct {
		Version string
		Results []preflight.Result
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("decode %s: %v", out, err)
	}
	for message, reason := range map[string]string{
		"cni-exclusive is true":                          "Cilium would rename the configuration",
		"the Service of validatingwebhookconfiguration":  "a webhook without its controller rejects every network",
		"namespace patchbay-preflight-killed":            "a preflight that was killed leaves its namespace",
		"the cluster has one node, and the controller's": "two replicas need two nodes",
	} {
		if !slices.ContainsFunc(answer.Results, func(r preflight.Result) bool { return strings.Contains(r.Message, message) }) {
			t.Errorf("%s: want %q in %s", reason, message, out)
		}
	}
	if len(k.seen) > 0 {
		t.Error("Pods were created in spite of --no-pods")
	}
	if _, err := runPreflight(t.Context(), env, "--no-pods", "--nodes=pre-api,none"); err == nil || !strings.Contains(err.Error(), "there is no none") {
		t.Errorf("unknown node: got %v", err)
	}
}

func webhookOf(config admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.ValidatingWebhook {
	none, ignore := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore
	return admissionregistrationv1.ValidatingWebhook{
		Name: "a.example.com", ClientConfig: config, SideEffects: &none, FailurePolicy: &ignore, AdmissionReviewVersions: []string{"v1"},
	}
}
