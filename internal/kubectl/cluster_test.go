// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestPlacementCommandsThatAreWrong(t *testing.T) {
	t.Parallel()
	const good = "--join-token=abcdef.0123456789abcdef"
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Hub":       {reason: "hub alone does nothing", args: []string{"hub"}, want: "want token, release or resume"},
		"Cluster":   {reason: "nor does cluster", args: []string{"cluster"}, want: "want join, leave, accept or list"},
		"NoName":    {reason: "a token is for one cluster", args: []string{"hub", "token"}, want: "give the name of one Cluster, such as east"},
		"BadName":   {reason: "a namespace is named after it", args: []string{"hub", "token", "East"}, want: `"East" is no name of a Cluster`},
		"LongName":  {reason: "with room for cluster-", args: []string{"cluster", "accept", strings.Repeat("x", 56)}, want: "at most 55"},
		"Life":      {reason: "a token that lasts is a password", args: []string{"hub", "token", "east", "--ttl=1000h"}, want: "flag --ttl"},
		"NoConfig":  {reason: "the file is named", args: []string{"hub", "token", "east", "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"NoHub":     {reason: "where to?", args: []string{"cluster", "join", "east", good}, want: "flag --hub"},
		"PlainHub":  {reason: "a token goes over TLS only", args: []string{"cluster", "join", "east", good, "--hub=http://h"}, want: "flag --hub"},
		"Hubs":      {reason: "each address is one", args: []string{"cluster", "join", "east", good, "--hub=https://h,h"}, want: `flag --hub: "h"`},
		"NoToken":   {reason: "by which right?", args: []string{"cluster", "join", "east", "--hub=https://h"}, want: "flag --join-token"},
		"CA":        {reason: "the authority is base64", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--ca=%"}, want: "flag --ca"},
		"Proxy":     {reason: "a proxy has an address", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--proxy=x"}, want: "flag --proxy"},
		"Image":     {reason: "an agent has an image", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--image="}, want: "flag --image"},
		"All":       {reason: "all faults are told at once", args: []string{"cluster", "join", "E", "--hub=h"}, want: "flag --join-token"},
		"JoinWhere": {reason: "the kubeconfig is read last", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"LeaveWho":  {reason: "the kubeconfig says which", args: []string{"cluster", "leave", "east"}, want: "unknown command"},
		"Take":      {reason: "two answers, and no default", args: []string{"hub", "resume"}, want: `flag --take: must be cluster or hub: got ""`},
		"TakeBoth":  {reason: "one of them", args: []string{"hub", "resume", "--take=both"}, want: `flag --take: must be cluster or hub: got "both"`},
		"Remove":    {reason: "nothing is named", args: []string{"remove"}, want: "accepts between 1 and 2 arg(s)"},
		"NoKind":    {reason: "a name alone is of any kind", args: []string{"remove", "web"}, want: "give KIND/NAME of one object, such as deployment/web"},
		"Timeout":   {reason: "to wait for no time at all is --wait=false", args: []string{"remove", "cm/web", "--timeout=0s"}, want: "flag --timeout: must be more than 0"},
		"RemoveAt":  {reason: "the kubeconfig is named", args: []string{"remove", "cm/web", "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"ListMore":  {reason: "all are listed", args: []string{"cluster", "list", "east"}, want: "unknown command"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := Run(t.Context(), tc.args, &out, &out)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestAuthority(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		cfg    rest.Config
		want   string
		err    string
	}{
		"Data":     {reason: "as the kubeconfig has it", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("PEM"), CAFile: "/nowhere"}}, want: "PEM"},
		"Known":    {reason: "one that all machines know", cfg: rest.Config{}},
		"File":     {reason: "the file is named", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, err: "/nowhere"},
		"Insecure": {reason: "a token would go to anybody", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, err: "does not check"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := certificateAuthority(&tc.cfg)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
			} else if err != nil || string(got) != tc.want {
				t.Errorf("%s: got %q, %v", tc.reason, got, err)
			}
		})
	}
}

// The manifests that are installed are the agent's, with name, image and way in them.
func TestWhatIsInstalled(t *testing.T) {
	t.Parallel()
	j := &joinOptions{
		cluster: "east", hub: "https://hub:6443", token: "abcdef.0123456789abcdef", ca: base64.StdEncoding.EncodeToString([]byte("PEM")),
		proxy: "http://u:p@proxy:3128", image: "registry/agent:1",
	}
	objects, err := j.manifests()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	want := []string{
		"CustomResourceDefinition", "Namespace", "Namespace", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ClusterRole", "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding",
		"Role", "RoleBinding", "Role", "RoleBinding", "Secret", "Deployment",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	raw, err := base64.StdEncoding.DecodeString(text(t, objects[len(objects)-2], "data", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil || cfg.Host != j.hub || cfg.BearerToken != j.token || string(cfg.CAData) != "PEM" || cfg.Proxy == nil {
		t.Errorf("the way to the hub is %+v, %v", cfg, err)
	}
	deployment := objects[len(objects)-1]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatal(err, containers)
	}
	agent := &unstructured.Unstructured{}
	agent.Object, _ = containers[0].(map[string]any)
	if text(t, agent, "image") != j.image || !strings.Contains(string(mustJSON(t, agent.Object["env"])), `{"name":"CLUSTER","value":"east"}`) {
		t.Errorf("the agent's container is %v", agent.Object)
	}
	if args := string(mustJSON(t, agent.Object["args"])); strings.Contains(args, "--token-auth") || strings.Contains(args, "--hub-address") {
		t.Errorf("nobody asked for %s", args)
	}
	before := deployment.DeepCopy()
	j.hub = "https://other:6443"
	if err := j.configureDeployment(deployment); err != nil || cmp.Equal(before.Object, deployment.Object) {
		t.Errorf("another hub does not start the agent anew: %v", err)
	}
	j.hub, j.tokenAuth = "https://one:6443,https://two:6443", true
	if err := j.configureDeployment(deployment); err != nil {
		t.Fatal(err)
	}
	if text := string(mustJSON(t, deployment.Object)); !strings.Contains(text, `"--hub-address=https://two:6443","--token-auth"`) {
		t.Errorf("further address and tokens are not in %s", text)
	}
	if err := j.configureDeployment(objects[0]); err == nil {
		t.Error("configures a CustomResourceDefinition")
	}
}

func TestClustersAreListed(t *testing.T) {
	t.Parallel()
	said := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: "because"}
	}
	clusters := []v1alpha1.Cluster{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "east"},
			Spec:       v1alpha1.ClusterSpec{Accepted: true, Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove}},
			Status: v1alpha1.ClusterStatus{
				Conditions: []metav1.Condition{said(v1alpha1.ConditionAccepted, "True"), said(v1alpha1.ConditionReachable, "False"), said(v1alpha1.ConditionHubMismatch, "True")},
				Assigned:   &v1alpha1.Assigned{Objects: 4, Replicas: 12}, Versions: &v1alpha1.Versions{Kubernetes: "v1.35.4"},
			},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "west"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "south"}, Spec: v1alpha1.ClusterSpec{Accepted: true, Unschedulable: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.ClusterSpec{Accepted: true}, Status: v1alpha1.ClusterStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: "False", Reason: v1alpha1.ReasonNamespaceTaken}},
		}},
	}
	want := []string{
		"NAME ACCEPTED REACHABLE OBJECTS REPLICAS VERSION NOTE",
		"east True False 4 12 v1.35.4 is being drained; HubMismatch: because",
		"west Unknown Unknown 0 0 kubectl patchbay cluster accept west",
		"south Unknown Unknown 0 0 takes nothing new",
		"prod False Unknown 0 0 NamespaceTaken: see kubectl describe cluster prod",
	}
	var out bytes.Buffer
	if err := printClusters(&out, clusters); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	out.Reset()
	if err := printClusters(&out, nil); err != nil || !strings.Contains(out.String(), "hub token") {
		t.Errorf("got %q, %v: an empty list says what to do", out.String(), err)
	}
}
