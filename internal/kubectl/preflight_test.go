// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// An older image of the daemon does not have the flag, and must be able to read nodes without it.
func TestPreflightPodArguments(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{"": false, "10-calico.conflist": true} {
		c := &preflightCheck{output: outputTable, pods: nodePods{image: "patchbayd", binDir: "/opt/cni/bin", confDir: "/etc/cni/net.d", timeout: time.Minute}}
		c.want.DefaultDelegate = file
		if err := c.parseFlags(); err != nil {
			t.Fatal(err)
		}
		args := c.pods.pod(preflight.Node{Name: "node-1"}).Spec.Containers[0].Args
		if got := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--default-delegate=") }); got != want || want && !slices.Contains(args, "--default-delegate="+file) {
			t.Errorf("with %q: got arguments %q, want the flag: %t", file, args, want)
		}
	}
}

func TestPreflightFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, flag, want string
	}{
		"feature": {"an unknown feature would not be checked", "--features=vlan,qinq", `flag --features: must be of ipvlan, macvlan, vlan, vxlan and source-guard: got "qinq"`},
		"path":    {"the daemon takes no path either", "--default-delegate=/etc/cni/net.d/a.conf", `flag --default-delegate: must be the name of a file in the folder of --cni-conf-dir, without a folder: got "/etc/cni/net.d/a.conf"`},
		"output":  {"there are two formats", "--output=yaml", `flag --output: must be table or json: got "yaml"`},
		"image":   {"a Pod needs an image", "--image=", "flag --image: must be the node daemon's image"},
		"folder":  {"a relative path has no meaning on a node", "--cni-conf-dir=net.d", `flag --cni-conf-dir: must be an absolute path: got "net.d"`},
		"timeout": {"without time no Pod ends", "--timeout=0s", "flag --timeout: must be positive"},
	} {
		err := Run(t.Context(), []string{"preflight", "--server=http://127.0.0.1:1", tc.flag}, &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// preflightClient returns a client of an API server on which the Pods of a preflight succeed. Reject returns the error
// of a request, or nil.
func preflightClient(reject func(verb, resource, node string) error) *fake.Clientset {
	kube := fake.NewClientset()
	kube.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		node := ""
		if create, ok := action.(clienttesting.CreateAction); ok {
			if pod, ok := create.GetObject().(*corev1.Pod); ok {
				node = pod.Spec.NodeName
				pod.Name, pod.UID, pod.Status.Phase = "node-"+node, types.UID(node), corev1.PodSucceeded
			}
		}
		err := reject(action.GetVerb(), action.GetResource().Resource, node)
		return err != nil, nil, err
	})
	return kube
}

func TestPreflightPods(t *testing.T) {
	t.Parallel()
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("policy"))
	}
	for name, tc := range map[string]struct {
		reason string
		// fails is a request that fails with err.
		fails [3]string
		err   error
		// want are parts of the results: LEVEL CHECK NODE: MESSAGE.
		want []string
		// left tells whether the namespace stays.
		left bool
	}{
		"all succeed": {
			reason: "the client of this test gives every Pod the same log",
			want:   []string{`failure Pod a: the Pod that reads the node printed no facts: "fake logs"`, "failure Pod b: the Pod that reads the node printed"},
		},
		"one Pod rejected": {
			reason: "a webhook that rejects one Pod is about one node only",
			fails:  [3]string{"create", "pods", "a"}, err: forbidden("pods"),
			want: []string{"failure Pod a: create the Pod that reads the node", "failure Pod b: the Pod that reads the node printed"},
		},
		"namespace rejected": {
			reason: "a user without the right to create namespaces gets all other results",
			fails:  [3]string{"create", "namespaces", ""}, err: forbidden("namespaces"),
			want: []string{"failure Pods : create namespace patchbay-preflight-"},
		},
		"no answer": {
			reason: "a namespace may have been created although the answer was lost, so it is removed",
			fails:  [3]string{"create", "serviceaccounts", ""}, err: errors.New("connection reset"),
			want: []string{"failure Pods : create ServiceAccount in namespace patchbay-preflight-"},
		},
		"no quota": {
			reason: "the nodes can be read without the quota",
			fails:  [3]string{"create", "resourcequotas", ""}, err: forbidden("resourcequotas"),
			want: []string{"warning Pods : create ResourceQuota", "failure Pod a: ", "failure Pod b: "},
		},
		"not removed": {
			reason: "a namespace that stays changes nothing of the results",
			fails:  [3]string{"delete", "namespaces", ""}, err: forbidden("namespaces"), left: true,
			want: []string{"failure Pod a: ", "failure Pod b: ", "warning Pods : remove namespace patchbay-preflight-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := preflightClient(func(verb, resource, node string) error {
				if tc.err != nil && tc.fails == [3]string{verb, resource, node} {
					return tc.err
				}
				return nil
			})
			p := &nodePods{kube: kube, warnings: io.Discard, timeout: time.Minute, cleanup: time.Second}
			_, all, err := p.read(t.Context(), []preflight.Node{{Name: "a"}, {Name: "b"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range all {
				got = append(got, fmt.Sprintf("%s %s %s: %s", r.Level, r.Check, r.Node, r.Message))
			}
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("%s:\n got %q\nwant %q", tc.reason, got, tc.want)
			}
			namespaces, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil || (len(namespaces.Items) > 0) != tc.left {
				t.Errorf("%s: got namespaces %v, %v, want that one stays: %t", tc.reason, namespaces.Items, err, tc.left)
			}
		})
	}
}

// A Pod that another account creates in the namespace does not count as the report of a node.
func TestPreflightIgnoresOtherPods(t *testing.T) {
	t.Parallel()
	kube := preflightClient(func(string, string, string) error { return nil })
	kube.PrependReactor("create", "resourcequotas", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, kube.Tracker().Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: action.GetNamespace(), Name: "zz", UID: "other"},
			Spec:       corev1.PodSpec{NodeName: "a"},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Fake"},
		})
	})
	p := &nodePods{kube: kube, warnings: io.Discard, timeout: time.Minute, cleanup: time.Second}
	_, all, err := p.read(t.Context(), []preflight.Node{{Name: "a"}})
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Message, "fake logs") {
		t.Errorf("got %+v, %v, want the log of the Pod that was created", all, err)
	}
}

// Applying the manifests creates objects, and patches those that exist.
func TestPreflightRights(t *testing.T) {
	t.Parallel()
	kube := fake.NewClientset()
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{}, nil
	})
	c := &preflight.Cluster{}
	if err := (clusterReader{kube: kube}).readRights(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"create poddisruptionbudgets", "patch deployments", "patch namespaces", "bind clusterroles"} {
		if !slices.Contains(c.Forbidden, want) {
			t.Errorf("got %q, want that %q was asked for", c.Forbidden, want)
		}
	}
}

func TestPreflightTable(t *testing.T) {
	t.Parallel()
	results := []preflight.Result{
		{Check: "Kubernetes", Level: preflight.OK, Message: "v1.35.0"},
		{Node: "a", Check: "kernel", Level: preflight.OK, Message: "6.1.0"},
		{Node: "a", Check: "module vxlan", Level: preflight.Warning, Message: "not loaded", Remedy: "Load it."},
		{Node: "b", Check: "kernel", Level: preflight.OK, Message: "6.1.0"},
		{Node: "b", Check: "ports", Level: preflight.Failure, Message: "in\x1b[2J use\n", Remedy: "Stop the program."},
	}
	var out bytes.Buffer
	if err := printTable(&out, groupResults(results)); err != nil {
		t.Fatal(err)
	}
	want := `RESULT    NODES       CHECK          FOUND
OK        (cluster)   Kubernetes     v1.35.0
OK        a, b        kernel         6.1.0
WARNING   a           module vxlan   not loaded
FAILURE   b           ports          in�[2J use�

FAILURE: ports on b: in�[2J use�
  Stop the program.

WARNING: module vxlan on a: not loaded
  Load it.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if err := failed(results); err == nil || err.Error() != "1 of 5 checks failed: ports" {
		t.Errorf("got %v, want an error that names the check", err)
	}
	if err := failed(results[:4]); err != nil {
		t.Errorf("warnings only: got %v, want no error", err)
	}
}
