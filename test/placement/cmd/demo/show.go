// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

//go:embed app.yaml
var app []byte

//go:embed policy.yaml
var policy []byte

// columns show all targets: the table of a definition shows the first only.
const columns = "KIND:.spec.object.kind,NAME:.spec.object.name,CLUSTERS:.spec.targets[*].cluster,REPLICAS:.spec.targets[*].replicas,STATES:.spec.targets[*].state"

// namespace of what is placed. Agents write only in namespaces that they make, or that are opened
// to their hub.
const namespace = "shop"

// stepTimeout bounds each step.
const stepTimeout = 2 * time.Minute

// demoRun runs kubectl before an audience.
type demoRun struct {
	bed *bed.Bed
	out io.Writer
}

// run is the demo.
func (s *demoRun) run(ctx context.Context) error {
	for _, name := range []string{"east", "west", "south"} {
		if err := s.kubectlQuietly(ctx, "wait", "--for=condition=Reachable", "cluster/"+name, "--timeout=110s"); err != nil {
			return err
		}
	}
	files := map[string]string{}
	for name, content := range map[string][]byte{"policy.yaml": policy, "app.yaml": app} {
		files[name] = filepath.Join(s.bed.Dir, name)
		if err := os.WriteFile(files[name], content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	steps := []step{
		{"The agents of three clusters have dialled the hub:", fields("get clusters.placement.patchbay.io")},
		{"A namespace, which the agents make in their clusters, too, and a policy for it: east and west, two to one. Then an\n" +
			"unchanged Deployment of 6 replicas, with its Service:", fields("create namespace " + namespace)},
		{"", fields("config set-context --current --namespace=" + namespace)},
		{"", []string{"apply", "-f", files["policy.yaml"]}},
		{"", []string{"apply", "-f", files["app.yaml"]}},
		{"The hub has no nodes; it sums up what the clusters report, so kubectl waits there as ever:", fields("rollout status deployment/shop --timeout=110s")},
		{"", fields("get deployment,service shop")},
		{"Where they are. This is one of two commands to read; east has 4 replicas, west 2:", fields("get assignments.placement.patchbay.io -o custom-columns=" + columns)},
		{"One annotation moves the Deployment to south. Its Service goes along, and stays where the policy says:", fields("annotate deployment/shop placement.patchbay.io/clusters=south")},
		{"", []string{"wait", "--for=delete", "work/" + assignment(), "--namespace=cluster-east", "--timeout=110s"}},
		{"", []string{"wait", "--for=delete", "work/" + assignment(), "--namespace=cluster-west", "--timeout=110s"}},
		{"", []string{"wait", "--for=jsonpath={.spec.targets[0].cluster}=south", "assignment/" + assignment(), "--timeout=110s"}},
		{"East and west gave up a replica only when south had another in its place:", fields("get assignments.placement.patchbay.io -o custom-columns=" + columns)},
		{"The other command to read is the Deployment itself:", fields("get deployment shop")},
	}
	for _, one := range steps {
		if err := s.step(ctx, one); err != nil {
			return err
		}
	}
	return s.clusters(ctx)
}

// assignment is the name of the Deployment's Assignment.
func assignment() string { return v1alpha1.WorkName("apps", "Deployment", namespace, "shop") }

// step is something to say, and a command of kubectl at the hub.
type step struct {
	text string
	args []string
}

func fields(text string) []string { return strings.Fields(text) }

func (s *demoRun) step(ctx context.Context, one step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if one.text != "" {
		fmt.Fprintln(s.out, "\n"+one.text)
	}
	fmt.Fprintln(s.out, "$ kubectl", strings.ReplaceAll(strings.Join(one.args, " "), s.bed.Dir+"/", ""))
	text, err := s.bed.Hub.Kubectl(ctx, one.args...)
	fmt.Fprint(s.out, text)
	return err
}

func (s *demoRun) kubectlQuietly(ctx context.Context, args ...string) error {
	_, err := s.bed.Hub.Kubectl(ctx, args...)
	return err
}

// clusters shows what each cluster has.
func (s *demoRun) clusters(ctx context.Context) error {
	fmt.Fprintln(s.out, "\nIn the clusters themselves:")
	for _, name := range []string{"east", "west", "south"} {
		text, err := s.bed.Clusters[name].Kubectl(ctx, "get", "deployments", "-n", namespace, "--no-headers", "--ignore-not-found")
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "  %-6s %s\n", name, strings.TrimSpace(text))
	}
	return nil
}
