// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	patchbay "github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/test/lab"
)

// release is a version of Patchbay, with its manifests and its plugin.
type release struct {
	// version is what its programs report.
	version string
	// tag is that of its images.
	tag string
	// deployments is the folder of its manifests, and plugin a file.
	deployments, plugin string
}

// current returns the version of this source tree.
func (b *bed) current() release {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), b.path("bin", "patchbayd"), "--version").CombinedOutput()
	if err != nil || len(out) == 0 {
		b.Fatalf("ask for the version (make build): got %q and error %v", out, err)
	}
	return release{
		version: strings.TrimSpace(string(out)), tag: patchbay.DevelopmentTag,
		deployments: b.path("deployments"), plugin: b.path("bin", "patchbay"),
	}
}

// previous returns the version of previous.txt, and imports its images on the nodes.
func (b *bed) previous() release {
	b.Helper()
	raw, err := os.ReadFile(b.path("test", "install", "previous.txt"))
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	_, version, _ := strings.Cut(lines[len(lines)-1], " ")
	images, err := filepath.Glob(b.path("bin", "previous", "images", "*.tar"))
	if err == nil && len(images) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		b.Fatalf("find images of the previous version (make previous): %v", err)
	}
	if err := b.lab.Import(b.Context(), images...); err != nil {
		b.Fatal(err)
	}
	return release{
		version: version, tag: version,
		deployments: b.path("bin", "previous", "deployments"), plugin: b.path("bin", "previous", "patchbay"),
	}
}

// onDelete keeps the daemons of all nodes until the test deletes their Pods.
const onDelete = `
patches:
  - target: {kind: DaemonSet}
    patch: '{apiVersion: apps/v1, kind: Any, metadata: {name: any}, spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}'
`

// applyRelease applies a folder of a version's manifests with more lines of a kustomization.
func (b *bed) applyRelease(r release, folder, more string) {
	b.Helper()
	dir, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	base, err := filepath.Rel(dir, filepath.Join(r.deployments, folder))
	if err != nil {
		b.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\nimages:\n", base)
	for _, name := range []string{"patchbayd", "patchbay-controller", "patchbay-operator"} {
		text += fmt.Sprintf("  - {name: %s/%s, newTag: %s}\n", patchbay.LocalRegistry, name, r.tag)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text+more), 0o600); err != nil {
		b.Fatal(err)
	}
	b.run("apply", "--server-side", "--kustomize", dir)
}

// replaceDaemon deletes the daemon of a node, which is then of the version that was applied last.
func (b *bed) replaceDaemon(node string) {
	b.Helper()
	b.run("delete", "pod", "-n", "patchbay-system", "-l", "app.kubernetes.io/name=patchbayd", "--field-selector=spec.nodeName="+node,
		"--timeout="+waitTimeout.String())
}

// replacePlugin gives all nodes the plugin of a version, as if a daemon of that version had installed it.
func (b *bed) replacePlugin(r release) {
	b.Helper()
	for _, node := range b.nodes {
		if _, err := b.lab.Exec(b.Context(), node, "sh", "-ec", `cp "$0" /opt/cni/bin/.next; mv /opt/cni/bin/.next /opt/cni/bin/patchbay`, r.plugin); err != nil {
			b.Fatal(err)
		}
	}
}

// deployed are the versions that run.
type deployed struct {
	controller release
	// daemons and plugins are those of the nodes.
	daemons, plugins []release
}

// awaitDeployed waits until these versions run, and no others.
func (b *bed) awaitDeployed(d deployed) {
	b.Helper()
	var want []string
	for i, node := range b.nodes {
		want = append(want,
			fmt.Sprintf("patchbay-controller:%s ready=true", d.controller.tag),
			fmt.Sprintf("patchbayd:%s ready=true on %s", d.daemons[i].tag, node),
			fmt.Sprintf("NodeNetwork %s %s", node, d.daemons[i].version),
			fmt.Sprintf("plugin on %s %s", node, d.plugins[i].version))
	}
	slices.Sort(want)
	b.await("the programs to be\n"+strings.Join(want, "\n"), func(ctx context.Context) (string, bool) {
		got, err := b.readDeployed(ctx, d)
		if err != nil {
			return err.Error(), false
		}
		return strings.Join(got, "\n"), slices.Equal(got, want)
	})
}

// readDeployed describes the programs that run.
func (b *bed) readDeployed(ctx context.Context, d deployed) ([]string, error) {
	var pods corev1.PodList
	var nodes v1.NodeNetworkList
	if err := errors.Join(b.client.List(ctx, &pods, client.InNamespace("patchbay-system")), b.client.List(ctx, &nodes)); err != nil {
		return nil, err
	}
	var got []string
	for _, p := range pods.Items {
		line := fmt.Sprintf("%s ready=%t", strings.TrimPrefix(p.Spec.Containers[0].Image, patchbay.LocalRegistry+"/"), isReady(&p))
		switch {
		case strings.HasPrefix(line, "patchbay-operator:"):
			continue
		case strings.HasPrefix(line, "patchbayd:"):
			line += " on " + p.Spec.NodeName
		}
		got = append(got, line)
	}
	for _, n := range nodes.Items {
		got = append(got, fmt.Sprintf("NodeNetwork %s %s", n.Name, n.Status.Version))
	}
	for i, node := range b.nodes {
		if _, err := b.lab.Exec(ctx, node, "cmp", "-s", d.plugins[i].plugin, "/opt/cni/bin/patchbay"); err != nil {
			continue
		}
		got = append(got, fmt.Sprintf("plugin on %s %s", node, d.plugins[i].version))
	}
	slices.Sort(got)
	return got, nil
}

// newClient returns a client of the cluster's administrator.
func newClient(l *lab.Lab) (client.Client, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}
