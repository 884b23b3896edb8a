// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab"
	"github.com/patchbay-cni/patchbay/test/source"
)

const (
	// stallTimeout is how long nothing may change of what a stage waits for, on a machine that is ten times
	// slower than an idle one.
	stallTimeout = 10 * time.Minute
	// waitTimeout is how long a wait may take in all.
	waitTimeout = 30 * time.Minute
)

// bed is the lab in which all stages run, for one of them.
type bed struct {
	*testing.T

	lab    *lab.Lab
	client client.Client
	nodes  []string
	// began is when the stage has begun.
	began time.Time
	// before is the state of each node without Patchbay.
	before map[string]string
}

// start starts the lab, with CoreDNS and an ordinary Pod on each node.
func start(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, before: map[string]string{}}
	if name, kept := os.LookupEnv("LAB"); kept {
		l, err := lab.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b.lab = l
	} else {
		b.lab = lab.Start(t, lab.Config{Nodes: nodes})
	}
	var err error
	if b.client, err = newClient(b.lab); err != nil {
		t.Fatal(err)
	}
	if b.nodes, err = b.lab.Nodes(); err != nil {
		t.Fatal(err)
	}
	b.startDNS()
	for _, node := range b.nodes {
		b.startPod(pod{name: "first-" + node, node: node})
	}
	b.run("delete", "pods", "--all", "--timeout="+waitTimeout.String())
	for _, node := range b.nodes {
		b.before[node] = b.nodeState(t.Context(), node)
	}
	return b
}

// with returns the bed for a subtest.
func (b *bed) with(t *testing.T) *bed {
	t.Helper()
	next := *b
	next.T, next.began = t, time.Now()
	t.Cleanup(next.report)
	return &next
}

// report prints what a failed stage has left.
func (b *bed) report() {
	if !b.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), stallTimeout)
	defer cancel()
	for _, args := range [][]string{
		{"get", "installations", "-o", "yaml"},
		{"get", "pods,daemonsets,deployments", "-A", "-o", "wide"},
		{"get", "nodenetworks,clusternetworks,danmeps", "-A"},
		{"get", "events", "-A", "--field-selector=type!=Normal", "--sort-by=.lastTimestamp"},
		{"logs", "-n", "patchbay-operator", "deployment/patchbay-operator", "--tail=60"},
		{"logs", "-n", "patchbay-system", "-l", "app.kubernetes.io/name=patchbayd", "-c", "patchbayd", "--prefix", "--tail=60"},
	} {
		out, err := b.lab.Kubectl(ctx, args...)
		if err != nil {
			out += err.Error()
		}
		b.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
}

// run runs kubectl, and returns its output.
func (b *bed) run(args ...string) string {
	b.Helper()
	out, err := b.lab.Kubectl(b.Context(), args...)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// apply applies a manifest. It tries again while the API server does not reach the webhooks, as docs/install.md
// says, and while it does not serve a kind that was defined just before.
func (b *bed) apply(manifest string) {
	b.Helper()
	b.await("the API server to accept the manifest", func(ctx context.Context) (string, bool) {
		_, err := b.lab.KubectlInput(ctx, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		if err == nil {
			return "", true
		}
		if !slices.ContainsFunc(transient(), func(text string) bool { return strings.Contains(err.Error(), text) }) {
			b.Fatalf("%v\n%s", err, manifest)
		}
		return err.Error(), false
	})
}

// transient returns texts of errors that go away.
func transient() []string {
	return []string{"failed calling webhook", "no matches for kind", "could not find the requested resource"}
}

// applyFolder applies a kustomization of deployments/.
func (b *bed) applyFolder(elements ...string) {
	b.Helper()
	b.run("apply", "--server-side", "--kustomize", b.path(append([]string{"deployments"}, elements...)...))
}

// deleteFolder deletes what applyFolder has applied.
func (b *bed) deleteFolder(elements ...string) {
	b.Helper()
	b.run("delete", "--ignore-not-found", "--timeout="+waitTimeout.String(), "--kustomize", b.path(append([]string{"deployments"}, elements...)...))
}

// path returns a path in the repository.
func (b *bed) path(elements ...string) string {
	b.Helper()
	path, err := source.Path(elements...)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// await polls until look says that it is done. The wait fails when look has returned the same state for
// stallTimeout.
func (b *bed) await(what string, look func(ctx context.Context) (state string, done bool)) {
	b.Helper()
	const pause, reportAfter = 500 * time.Millisecond, 10 * time.Second
	began := time.Now()
	last, changed := "", began
	for {
		asked := time.Now()
		state, done := look(b.Context())
		if took := time.Since(began).Round(time.Second); done && took >= reportAfter {
			b.Logf("waited %v for %s", took, what)
		}
		if done {
			return
		}
		if state != last {
			last, changed = state, time.Now()
		}
		if time.Since(changed) > stallTimeout || time.Since(began) > waitTimeout {
			b.Fatalf("waited %v for %s, and %v for a change: %s", time.Since(began), what, time.Since(changed), last)
		}
		select {
		case <-b.Context().Done():
			b.Fatalf("waited for %s: %v", what, last)
		case <-time.After(max(pause, time.Since(asked))): // so that the wait takes at most half of a processor
		}
	}
}

// awaitNothing polls until kubectl prints nothing.
func (b *bed) awaitNothing(what string, args ...string) {
	b.Helper()
	b.await(what, func(ctx context.Context) (string, bool) {
		out, err := b.lab.Kubectl(ctx, args...)
		if err != nil {
			return err.Error(), false
		}
		return out, strings.TrimSpace(out) == ""
	})
}

// awaitPrograms waits until the node daemon runs on all nodes and the controller has its replicas.
func (b *bed) awaitPrograms() {
	b.Helper()
	b.await("the programs to be ready", func(ctx context.Context) (string, bool) {
		state, err := b.lab.Kubectl(ctx, "get", "daemonsets,deployments", "-n", "patchbay-system", "-o", "wide")
		if err != nil {
			return err.Error(), false
		}
		_, err = b.lab.Kubectl(ctx, "rollout", "status", "-n", "patchbay-system", "daemonset,deployment",
			"-l", "app.kubernetes.io/part-of=patchbay", "--timeout=5s")
		return state, err == nil && strings.Contains(state, "daemonset.apps/patchbayd")
	})
}
