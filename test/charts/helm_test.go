// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/source"
)

// namespace is that of the manifests.
const namespace = "patchbay-system"

// helm runs Helm without a cluster, and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helmIn(t, nil, args...)
}

// helmIn runs Helm with further environment variables, and returns what it prints.
func helmIn(t *testing.T, environment []string, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path(t, "bin", "helm"), args...)
	cmd.Env = append([]string{
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none"),
	}, environment...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	if err != nil {
		t.Fatalf("helm: %v: `make helm` builds it", err)
	}
	return out.String(), nil
}

// chart returns the folder of a chart, whose files are inputs of the test.
func chart(t *testing.T, name string) string {
	t.Helper()
	return path(t, "charts", name)
}

func path(t *testing.T, elements ...string) string {
	t.Helper()
	p, err := source.Path(elements...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// valuesFile returns a file with values.
func valuesFile(t *testing.T, values any) string {
	t.Helper()
	text, err := sigsyaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// render returns the text that the chart of the programs renders to.
func render(t *testing.T, values any, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"template", "patchbay", chart(t, "patchbay"), "--namespace", namespace, "--values", valuesFile(t, values)}, args...)
	return helm(t, args...)
}

// mustRender is render for values that must be accepted.
func mustRender(t *testing.T, values any) map[string]map[string]any {
	t.Helper()
	text, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// objects decodes objects, by their kind and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text)); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o) == 0 {
			continue
		}
		if _, twice := found[key(o)]; twice {
			t.Errorf("%s is there twice", key(o))
		}
		found[key(o)] = o
	}
}

func key(o map[string]any) string {
	metadata, _ := o["metadata"].(map[string]any)
	return fmt.Sprintf("%v %v/%v", o["kind"], metadata["namespace"], metadata["name"])
}

// workload returns the rendered workload of a part.
func workload(t *testing.T, rendered map[string]map[string]any, part string) map[string]any {
	t.Helper()
	name := map[string]string{
		"node": "DaemonSet " + namespace + "/patchbayd", "controller": "Deployment " + namespace + "/patchbay-controller",
		"placementAgent": "Deployment " + namespace + "/patchbay-agent",
	}[part]
	o, ok := rendered[name]
	if !ok {
		t.Fatalf("find %s: it is not rendered", name)
	}
	return o
}

// field returns the value below keys.
func field(t *testing.T, value any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		below, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("find %v: %s is below %T", keys, key, value)
		}
		value = below[key]
	}
	return value
}

// mapOf returns the map that a value must be.
func mapOf(t *testing.T, value any) map[string]any {
	t.Helper()
	m, ok := value.(map[string]any)
	if !ok {
		t.Fatalf("got %v, want a map", value)
	}
	return m
}

// firstOf returns the first map of a list.
func firstOf(t *testing.T, of map[string]any, list string) map[string]any {
	t.Helper()
	all := listOf(t, of[list])
	if len(all) == 0 {
		t.Fatalf("%s is empty", list)
	}
	return mapOf(t, all[0])
}

// listOf returns the list that a value must be.
func listOf(t *testing.T, value any) []any {
	t.Helper()
	list, ok := value.([]any)
	if !ok {
		t.Fatalf("got %v, want a list", value)
	}
	return list
}
