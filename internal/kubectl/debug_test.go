// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

func TestParseDebugArguments(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		args      []string
		want      debugArguments
		namespace string
	}{
		"Passed":   {reason: "flags of kubectl are passed on", args: []string{"deployment/web", "-f", "--since=5m"}, want: debugArguments{object: "deployment/web", kubectl: []string{"-f", "--since=5m"}}},
		"Before":   {reason: "the value of a flag is not the object", args: []string{"-c", "app", "--tail", "5", "web-0"}, want: debugArguments{object: "web-0", kubectl: []string{"-c", "app", "--tail", "5"}}},
		"Together": {reason: "flags may be together", args: []string{"-it", "statefulset/db", "--", "sh", "-n"}, want: debugArguments{object: "statefulset/db", kubectl: []string{"-it", "--", "sh", "-n"}}},
		"In":       {reason: "--in is not kubectl's", args: []string{"--in", "east", "pod/db-0"}, want: debugArguments{object: "pod/db-0", cluster: "east"}},
		"Hub":      {reason: "the hub's namespace is not passed on", args: []string{"-nshop", "pod/a", "--in=b"}, want: debugArguments{object: "pod/a", cluster: "b"}, namespace: "shop"},
		"Short":    {reason: "a short flag may have an equals sign", args: []string{"-n=shop", "pod/a"}, want: debugArguments{object: "pod/a"}, namespace: "shop"},
		"Shared":   {reason: "a timeout is for both", args: []string{"pod/a", "--request-timeout", "5s"}, want: debugArguments{object: "pod/a", kubectl: []string{"--request-timeout=5s"}}},
		"Bool":     {reason: "a flag without a value takes none", args: []string{"--insecure-skip-tls-verify", "pod/a"}, want: debugArguments{object: "pod/a"}},
		"Ports":    {reason: "further arguments are kubectl's", args: []string{"deployment/web", "8080:80", "9090:90"}, want: debugArguments{object: "deployment/web", kubectl: []string{"8080:80", "9090:90"}}},
		"Help":     {reason: "help is the plugin's", args: []string{"pod/a", "--help"}, want: debugArguments{object: "pod/a", help: true}},
		"Command":  {reason: "help after -- is the command's", args: []string{"pod/a", "--", "ls", "--help"}, want: debugArguments{object: "pod/a", kubectl: []string{"--", "ls", "--help"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(genericiooptions.NewTestIOStreamsDiscard())
			cmd, _, err := root.Find([]string{"logs"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseDebugArguments(cmd, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got, cmp.AllowUnexported(debugArguments{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if ns := cmd.Flag("namespace").Value.String(); ns != tc.namespace {
				t.Errorf("%s: got namespace %q, want %q", tc.reason, ns, tc.namespace)
			}
		})
	}
}

// A flag without its value is an error, which names the flag.
func TestParseDebugArgumentsWithoutValue(t *testing.T) {
	t.Parallel()
	cmd, _, err := newRoot(genericiooptions.NewTestIOStreamsDiscard()).Find([]string{"exec"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseDebugArguments(cmd, []string{"pod/a", "--in"}); err == nil || !strings.Contains(err.Error(), "flag --in must have a value") {
		t.Errorf("got %v", err)
	}
}

func TestSelectorOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, object, want string }{
		"Labels":      {"of a Deployment", "{spec: {selector: {matchLabels: {app: web}}}}", "app=web"},
		"Expressions": {"of a Deployment", "{spec: {selector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}}}", "app in (a,b)"},
		"Service":     {"of a Service", "{spec: {selector: {app: web, tier: x}}}", "app=web,tier=x"},
		"None":        {"of a CronJob", "{spec: {}}", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &o.Object); err != nil {
				t.Fatal(err)
			}
			if got, err := selectorOf(o); err != nil || got != tc.want {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// Errors name the side that has to give a right.
func TestExplainClusterError(t *testing.T) {
	t.Parallel()
	debug := schema.GroupResource{Group: v1alpha1.DebugGroup, Resource: "clusters"}
	absent := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)
	cases := map[string]struct {
		reason string
		err    error
		want   []string
	}{
		"Hub":     {"RBAC of the hub", apierrors.NewForbidden(debug, "east", errors.New(`User "ann" cannot get resource "clusters/proxy"`)), []string{"the hub forbids it", "--clusterrole=patchbay-debug", "-n shop"}},
		"Rule":    {"no role changes a rule", apierrors.NewForbidden(debug, "", errors.New("other Pods of the namespace")), []string{"a rule of the hub and the cluster's agent"}},
		"Cluster": {"RBAC of the cluster", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "patchbay:ann" cannot list`)), []string{"the cluster forbids it", "--clusterrole=view --user=patchbay:NAME"}},
		"NoHub":   {"a hub without the API", absent, []string{"no debug API", "--debug-address"}},
		"Name":    {"a Cluster that does not exist", apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "clusters"}, "east"), []string{"no such Cluster"}},
		"Away":    {"an agent without debug access", apierrors.NewServiceUnavailable("its agent must run with --debug-access"), []string{"the hub does not reach it", "--debug-access"}},
		"Gone":    {"the object is not in the cluster", apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web"), []string{`Cluster east: deployments.apps "web" not found`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := (&proxiedCluster{cluster: "east", namespace: "shop"}).explain("read pods", tc.err)
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want it to contain %q", tc.reason, err, want)
				}
			}
		})
	}
}

// kubectl gets the address of the cluster and the credentials of the hub in a file, and no flags with them.
func TestClusterKubeconfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config")
	before := clientcmdapi.NewConfig()
	before.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://hub:6443/", ProxyURL: "http://proxy:3128"}
	before.AuthInfos["me"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "login", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	before.Contexts["hub"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "me"}
	before.CurrentContext = "hub"
	if err := clientcmd.WriteToFile(*before, file); err != nil {
		t.Fatal(err)
	}
	f := newFactory(genericiooptions.IOStreams{})
	*f.config.KubeConfig, *f.config.BearerToken, *f.config.Impersonate, *f.config.Insecure = file, "secret", "ann", true
	got, err := clusterKubeconfig(f, "east", "shop")
	if err != nil {
		t.Fatal(err)
	}
	server, user := got.Clusters["hub/east"], got.AuthInfos["hub/east"]
	if server.Server != "https://hub:6443/apis/debug.placement.patchbay.io/v1alpha1/namespaces/shop/clusters/east/proxy" || server.ProxyURL != "http://proxy:3128" || !server.InsecureSkipTLSVerify {
		t.Errorf("got cluster %+v", server)
	}
	if user.Token != "secret" || user.Impersonate != "ann" || user.Exec == nil || got.Contexts[got.CurrentContext].Namespace != "shop" {
		t.Errorf("got user %+v", user)
	}
}

// fakeKubectl makes a folder with a kubectl that is a script.
func fakeKubectl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", t.TempDir())
}

func testFactory(out *bytes.Buffer) *factory {
	f := newFactory(genericiooptions.IOStreams{In: strings.NewReader("typed"), Out: out, ErrOut: out})
	*f.config.APIServer = "https://hub"
	return f
}

// The exit code and the output are kubectl's, and the kubeconfig is private and gone at the end.
func TestRunKubectl(t *testing.T) {
	fakeKubectl(t, `stat -c %a "${1#--kubeconfig=}"; cat; shift; echo " $@"; exit 7`)
	var out bytes.Buffer
	err := runKubectl(t.Context(), testFactory(&out), "east", "shop", "exec", "pod/a", "--", "sh")
	if err == nil || err.Error() != "exit code 7" || out.String() != "600\ntyped exec pod/a -- sh\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
	checkNothingLeft(t)
}

func checkNothingLeft(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Signals reach kubectl, also when they come twice, and the file is gone all the same.
func TestRunKubectlSignals(t *testing.T) {
	fakeKubectl(t, `n=0; trap 'n=$((n+1)); echo signal; [ $n -lt 2 ] || exit 3' TERM; echo ready; while true; do sleep 0.05; done`)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := testFactory(&bytes.Buffer{})
	f.Out = writer
	ended := make(chan error, 1)
	go func() { ended <- runKubectl(t.Context(), f, "east", "shop", "logs", "pod/a") }()
	buffer := make([]byte, 100)
	for _, want := range []string{"ready\n", "signal\n"} {
		n, err := reader.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		if err == nil || err.Error() != "exit code 3" {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
	checkNothingLeft(t)
}

// A signal that ends kubectl has the exit code that it has in a shell.
func TestRunKubectlEndsBySignal(t *testing.T) {
	fakeKubectl(t, "kill -INT $$")
	var out bytes.Buffer
	if err := runKubectl(t.Context(), testFactory(&out), "east", "shop", "logs", "pod/a"); err == nil || err.Error() != "exit code 130" {
		t.Errorf("got %v, %q", err, out.String())
	}
}

// A machine without kubectl is named.
func TestRunKubectlMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := runKubectl(t.Context(), testFactory(&bytes.Buffer{}), "east", "shop", "logs"); err == nil || !strings.Contains(err.Error(), "folder of PATH") {
		t.Errorf("got %v", err)
	}
}
