// SPDX-License-Identifier: Apache-2.0

package attachments_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
)

// cluster is an API server with DanmEps and Pods, which it sends one by one.
type cluster struct {
	client.Reader

	danmEps []v1.DanmEp
	pods    []metav1.PartialObjectMetadata
	// missing means that the API server does not serve DanmEps. definition is what the read of their definition returns.
	missing    bool
	definition error
	isEnding   bool
}

// errUnknownPath is the answer of a proxy, or of an API server that does not serve a kind.
var errUnknownPath = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)

// Get implements client.Reader.
func (c *cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key.Name != "danmeps.danm.io" {
		return fmt.Errorf("unexpected read of %s", key)
	}
	if c.isEnding {
		now := metav1.Now()
		into.SetDeletionTimestamp(&now)
	}
	return c.definition
}

// List implements client.Reader.
func (c *cluster) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	at := 0
	_, _ = fmt.Sscan(o.Continue, &at)
	next := func(all int) string {
		if at+1 < all {
			return fmt.Sprint(at + 1)
		}
		return ""
	}
	switch list := into.(type) {
	case *v1.DanmEpList:
		if c.missing {
			return errUnknownPath
		}
		list.Items = c.danmEps[min(at, len(c.danmEps)):min(at+1, len(c.danmEps))]
		list.Continue = next(len(c.danmEps))
	case *metav1.PartialObjectMetadataList:
		list.Items = c.pods[min(at, len(c.pods)):min(at+1, len(c.pods))]
		list.Continue = next(len(c.pods))
	}
	return nil
}

func pod(name string, uid types.UID) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}}
}

// mirrorPod is what the API server has of a static Pod.
func mirrorPod(name string, uid types.UID) metav1.PartialObjectMetadata {
	mirror := pod(name, uid)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	return mirror
}

func danmEp(pod, uid string) v1.DanmEp {
	ep := v1.DanmEp{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod + ".eth0", Finalizers: []string{v1.NodeFinalizer}}}
	ep.Spec = v1.DanmEpSpec{Pod: pod, PodUID: uid, Host: "n1", APIType: v1.KindClusterNetwork, NetworkName: "default"}
	return ep
}

func TestList(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		c      cluster
		exist  map[string]bool
	}{
		"Exists":    {"Its Pod runs.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}, pods: []metav1.PartialObjectMetadata{pod("db", "9"), pod("web", "1")}}, map[string]bool{"shop/web": true}},
		"Gone":      {"Its node has not detached it.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}}, map[string]bool{"shop/web": false}},
		"Recreated": {"The new Pod of the name is another one.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}, pods: []metav1.PartialObjectMetadata{pod("web", "2")}}, map[string]bool{"shop/web": false}},
		"Mirror":    {"A static Pod has a mirror Pod.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}, pods: []metav1.PartialObjectMetadata{mirrorPod("web", "1")}}, map[string]bool{"shop/web": true}},
		"MirrorNew": {"Kubelet has made the mirror Pod again, and the static Pod runs as before.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}, pods: []metav1.PartialObjectMetadata{mirrorPod("web", "2")}}, map[string]bool{"shop/web": true}},
		"NoMirror":  {"The static Pod's file was removed, and its node has not detached it.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1")}, pods: []metav1.PartialObjectMetadata{mirrorPod("db", "2")}}, map[string]bool{"shop/web": false}},
		"DANM":      {"DANM's DanmEps have no UID of a Pod.", cluster{danmEps: []v1.DanmEp{danmEp("web", "")}, pods: []metav1.PartialObjectMetadata{pod("web", "2")}}, map[string]bool{"shop/web": true}},
		"Pages":     {"A large cluster has several pages.", cluster{danmEps: []v1.DanmEp{danmEp("web", "1"), danmEp("db", "9")}, pods: []metav1.PartialObjectMetadata{pod("web", "1")}}, map[string]bool{"shop/db": false, "shop/web": true}},
		"NoKind":    {"The definition is deleted, and with it all attachments.", cluster{missing: true, definition: apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, "danmeps.danm.io")}, nil},
		"Ending":    {"The definition is being deleted, after all its objects.", cluster{missing: true, isEnding: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := attachments.List(t.Context(), &tc.c)
			if err != nil || len(all) != len(tc.exist) {
				t.Fatalf("%s: got %+v, %v, want %v", tc.reason, all, err, tc.exist)
			}
			for i := range all {
				if want, ok := tc.exist[all[i].Pod]; !ok || all[i].PodExists != want || !all[i].HasFinalizer {
					t.Errorf("%s: got %+v, want %v", tc.reason, all[i], tc.exist)
				}
			}
		})
	}
}

// An answer that DanmEps are unknown must not look like a cluster without Pods: the uninstallation would go on.
func TestListDoesNotTrustAProxy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		definition error
	}{
		"Exists":    {"The definition exists, so that its objects may.", nil},
		"Proxy":     {"A proxy does not know the definition's path either.", errUnknownPath},
		"Forbidden": {"The user may not read the definition.", apierrors.NewForbidden(schema.GroupResource{}, "", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := attachments.List(t.Context(), &cluster{missing: true, definition: tc.definition})
			if err == nil || !strings.Contains(err.Error(), "list danmeps.danm.io") {
				t.Errorf("%s: got %+v, %v, want an error", tc.reason, all, err)
			}
		})
	}
}

// A Pod with several interfaces is one Pod, and a message has the first five.
func TestDescribe(t *testing.T) {
	t.Parallel()
	var all []attachments.Attachment
	for _, name := range []string{"a", "a", "b", "c", "d", "e", "f", "g"} {
		all = append(all, attachments.Attachment{Pod: "shop/" + name, Node: "n1", Network: "DanmNet/shop/x"})
	}
	if got := attachments.CountPods(all); got != 7 {
		t.Errorf("CountPods: got %d, want 7", got)
	}
	const first = "shop/a on node n1 (DanmNet/shop/x), shop/b on node n1 (DanmNet/shop/x)"
	if got := attachments.Describe(all[:3]); got != first {
		t.Errorf("got %q, want %q", got, first)
	}
	const most = first + ", shop/c on node n1 (DanmNet/shop/x), shop/d on node n1 (DanmNet/shop/x), shop/e on node n1 (DanmNet/shop/x) and 2 more"
	if got := attachments.Describe(all); got != most {
		t.Errorf("got %q, want %q", got, most)
	}
}

// The token of a stolen node writes DanmEps with any text, and an administrator lists them in a terminal.
func TestListReachesATerminalAsOneLine(t *testing.T) {
	t.Parallel()
	const escape = "\x1b[2J\x1b]0;title\a\r\n\u0085\u009b1m\u202e"
	for name, tc := range map[string]struct {
		reason string
		change func(*v1.DanmEpSpec)
	}{
		"Pod":         {"The name of a Pod, which need not exist.", func(s *v1.DanmEpSpec) { s.Pod += escape }},
		"Node":        {"An older API server has no policy for the host.", func(s *v1.DanmEpSpec) { s.Host += escape }},
		"NetworkName": {"The name of a network.", func(s *v1.DanmEpSpec) { s.NetworkName += escape }},
		"APIType":     {"The kind of a network.", func(s *v1.DanmEpSpec) { s.APIType += escape }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ep := danmEp("web", "")
			tc.change(&ep.Spec)
			all, err := attachments.List(t.Context(), &cluster{danmEps: []v1.DanmEp{ep}, pods: []metav1.PartialObjectMetadata{pod("web", "1")}})
			if err != nil || len(all) != 1 {
				t.Fatalf("got %+v, %v, want one attachment", all, err)
			}
			got := attachments.Describe(all)
			if i := strings.IndexFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }); i >= 0 || !strings.Contains(got, "shop/web") {
				t.Errorf("%s Got %q, want one line without control characters", tc.reason, got)
			}
			if want := name != "Pod"; all[0].PodExists != want {
				t.Errorf("%s Got PodExists %t, want %t", tc.reason, all[0].PodExists, want)
			}
		})
	}
}

// The report of a node is part of a message for people: it is bounded, and has one line.
func TestWithoutDanmEp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason    string
		condition metav1.Condition
		want      string
	}{
		"Missing":   {"Pods have no DanmEp.", metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Message: "1 Pods:\nshop/db"}, "1 Pods: shop/db"},
		"NoMessage": {"An empty text would be none.", metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: v1.ReasonDanmEpNotCreated}, v1.ReasonDanmEpNotCreated},
		"False":     {"All Pods have one.", metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionFalse, Message: "none"}, ""},
		"Other":     {"Links are not up.", metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Message: "up"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &v1.NodeNetwork{Status: v1.NodeNetworkStatus{Conditions: []metav1.Condition{tc.condition}}}
			if got := attachments.WithoutDanmEp(n); got != tc.want {
				t.Errorf("%s Got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
	long := metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Message: strings.Repeat("a", 30000)}
	if got := attachments.WithoutDanmEp(&v1.NodeNetwork{Status: v1.NodeNetworkStatus{Conditions: []metav1.Condition{long}}}); len(got) > 1000 {
		t.Errorf("got %d bytes, want a bounded text", len(got))
	}
}
