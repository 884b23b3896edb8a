// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		"Hub":       {reason: "hub needs a verb", args: []string{"hub"}, want: "kubectl patchbay hub: give one of its verbs: token, remove-finalizers or resume"},
		"Cluster":   {reason: "cluster needs a verb", args: []string{"cluster"}, want: "join, leave, accept, list, drain, cordon, uncordon or declare-lost"},
		"NoName":    {reason: "a token is for one cluster", args: []string{"hub", "token"}, want: "give the name of one Cluster, such as east"},
		"BadName":   {reason: "the cluster's namespace has the name in its own", args: []string{"hub", "token", "East"}, want: `"East" must be the name of a Cluster`},
		"LongName":  {reason: "the namespace's prefix cluster- needs room", args: []string{"cluster", "accept", strings.Repeat("x", 56)}, want: "at most 55"},
		"TTL":       {reason: "a token that does not expire is a password", args: []string{"hub", "token", "east", "--ttl=1000h"}, want: "flag --ttl"},
		"NoConfig":  {reason: "the message names the file", args: []string{"hub", "token", "east", "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"NoHub":     {reason: "the agent needs an address of the hub", args: []string{"cluster", "join", "east", good}, want: "flag --hub"},
		"PlainHub":  {reason: "tokens are sent over TLS only", args: []string{"cluster", "join", "east", good, "--hub=http://h"}, want: "flag --hub"},
		"Hubs":      {reason: "each address of a list is checked", args: []string{"cluster", "join", "east", good, "--hub=https://h,h"}, want: `got "h"`},
		"NoToken":   {reason: "the agent needs a join token", args: []string{"cluster", "join", "east", "--hub=https://h"}, want: "flag --join-token"},
		"CA":        {reason: "the certificate authority must be base64", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--ca=%"}, want: "flag --ca"},
		"Proxy":     {reason: "the proxy must be an address", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--proxy=x"}, want: "flag --proxy"},
		"Image":     {reason: "the agent needs an image", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--image="}, want: "flag --image"},
		"All":       {reason: "all errors are reported at once", args: []string{"cluster", "join", "E", "--hub=h"}, want: "flag --join-token"},
		"JoinWhere": {reason: "the kubeconfig is read after the flags are checked", args: []string{"cluster", "join", "east", "--hub=https://h", good, "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"LeaveWho":  {reason: "the kubeconfig selects the cluster", args: []string{"cluster", "leave", "east"}, want: "unknown command"},
		"Take":      {reason: "there are two answers and no default", args: []string{"hub", "resume"}, want: `flag --take: must be cluster or hub: got ""`},
		"TakeBoth":  {reason: "only one answer is possible", args: []string{"hub", "resume", "--take=both"}, want: `flag --take: must be cluster or hub: got "both"`},
		"Remove":    {reason: "an object must be named", args: []string{"remove"}, want: "accepts between 1 and 2 arg(s)"},
		"NoKind":    {reason: "a name without a kind is ambiguous", args: []string{"remove", "web"}, want: "give KIND/NAME of one object, such as deployment/web"},
		"Timeout":   {reason: "--wait=false is the way not to wait", args: []string{"remove", "cm/web", "--timeout=0s"}, want: "flag --timeout: must be more than 0"},
		"RemoveAt":  {reason: "the message names the kubeconfig", args: []string{"remove", "cm/web", "--kubeconfig=/nowhere"}, want: "/nowhere"},
		"Format":    {reason: "the message names the formats", args: []string{"cluster", "list", "-o", "table"}, want: "flag --output: unable to match a printer"},
		"ListMore":  {reason: "the verb lists all clusters", args: []string{"cluster", "list", "east"}, want: "unknown command"},
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
		"Data":     {reason: "the kubeconfig's data has precedence over its file", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("PEM"), CAFile: "/nowhere"}}, want: "PEM"},
		"Known":    {reason: "a public certificate authority needs no data", cfg: rest.Config{}},
		"File":     {reason: "the message names the file", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, err: "/nowhere"},
		"Insecure": {reason: "the token would be sent to an unverified server", cfg: rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, err: "does not check"},
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

// The installed objects are the agent's manifests with the cluster's name, the image and the hub.
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
	raw, err := base64.StdEncoding.DecodeString(textOf(t, objects[len(objects)-2], "data", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil || cfg.Host != j.hub || cfg.BearerToken != j.token || string(cfg.CAData) != "PEM" || cfg.Proxy == nil {
		t.Errorf("the hub's kubeconfig is %+v, %v", cfg, err)
	}
	deployment := objects[len(objects)-1]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatal(err, containers)
	}
	agent := &unstructured.Unstructured{}
	agent.Object, _ = containers[0].(map[string]any)
	if textOf(t, agent, "image") != j.image || !strings.Contains(string(mustJSON(t, agent.Object["env"])), `{"name":"CLUSTER","value":"east"}`) {
		t.Errorf("the agent's container is %v", agent.Object)
	}
	if args := string(mustJSON(t, agent.Object["args"])); strings.Contains(args, "--token-auth") || strings.Contains(args, "--hub-address") {
		t.Errorf("got the arguments %s, want none of these flags", args)
	}
	before := deployment.DeepCopy()
	j.hub = "https://other:6443"
	if err := j.configureDeployment(deployment); err != nil || cmp.Equal(before.Object, deployment.Object) {
		t.Errorf("another hub does not change the Pod template, so the agent does not restart: %v", err)
	}
	j.hub, j.tokenAuth, j.debugAccess = "https://one:6443,https://two:6443", true, true
	if err := j.configureDeployment(deployment); err != nil {
		t.Fatal(err)
	}
	if text := string(mustJSON(t, deployment.Object)); !strings.Contains(text, `"--hub-address=https://two:6443","--token-auth","--debug-access"`) {
		t.Errorf("further address and tokens are not in %s", text)
	}
	if err := j.configureDeployment(objects[0]); err == nil {
		t.Error("a CustomResourceDefinition: got no error")
	}
}

func TestClusterList(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: "because"}
	}
	clusters := []v1alpha1.Cluster{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "east"},
			Spec:       v1alpha1.ClusterSpec{Accepted: true, Drain: &v1alpha1.Drain{Mode: v1alpha1.DrainMove}},
			Status: v1alpha1.ClusterStatus{
				Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, "True"), condition(v1alpha1.ConditionReachable, "False"), condition(v1alpha1.ConditionHubMismatch, "True")},
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
		"prod False Unknown 0 0 NamespaceTaken: see kubectl describe cluster prod",
		"south Unknown Unknown 0 0 gets no new objects",
		"west Unknown Unknown 0 0 kubectl patchbay cluster accept west",
	}
	var got []string
	for line := range strings.Lines(listClusters(t, clusters)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if out := listClusters(t, nil); !strings.Contains(out, "hub token") {
		t.Errorf("empty list: got %q, want the next step", out)
	}
	if out := listClusters(t, clusters[:1], "--no-headers"); strings.Contains(out, "NAME") || !strings.HasPrefix(out, "east ") {
		t.Errorf("--no-headers: got %q", out)
	}
	for format, want := range map[string]string{
		"name":                                   "cluster.placement.patchbay.io/east\ncluster.placement.patchbay.io/west\n",
		"jsonpath={.items[*].metadata.name}":     "east west",
		"go-template={{range .items}}-{{end}}":   "--",
		"jsonpath={.items[0].kind} {.kind}":      "Cluster ClusterList",
		"jsonpath={.items[0].apiVersion}":        "placement.patchbay.io/v1alpha1",
		"jsonpath={.items[0].spec.drain.mode}":   "Move",
		"jsonpath={.items[1].spec.unknown.name}": "",
	} {
		if got := listClusters(t, clusters[:2], "-o", format); got != want {
			t.Errorf("-o %s: got %q, want %q", format, got, want)
		}
	}
	if out := listClusters(t, nil, "-o", "yaml"); !strings.Contains(out, "kind: ClusterList") || strings.Contains(out, "hub token") {
		t.Errorf("empty list as YAML: got %q", out)
	}
}

// listClusters returns what `cluster list` prints for a hub with the clusters.
func listClusters(t *testing.T, clusters []v1alpha1.Cluster, flags ...string) string {
	t.Helper()
	var objects []client.Object
	for i := range clusters {
		objects = append(objects, clusters[i].DeepCopy())
	}
	l := &clusterListing{print: genericclioptions.NewPrintFlags("")}
	cmd := &cobra.Command{}
	l.addFlags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	printer, err := l.printer()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.run(t.Context(), fakeHub(t, interceptor.Funcs{}, objects...), printer, &out, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
