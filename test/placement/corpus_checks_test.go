// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// awaitStatuses waits until kstatus finds at all sides what it is to, and returns what it finds then. It reads again what
// is not as it is to be, and at the end all.
func (r *corpusRun) awaitStatuses(t *testing.T) (found []map[string]string) {
	t.Helper()
	wanted := r.onOneCluster("kstatus")
	unsettled := r.objects
	for end := time.Now().Add(corpusPatience); ; <-time.After(10 * pollInterval) {
		found = nil
		for _, at := range r.sides() {
			found = append(found, r.statuses(at, unsettled))
		}
		all := len(unsettled) == len(r.objects)
		unsettled = slices.DeleteFunc(slices.Clone(unsettled), func(o corpusObject) bool {
			at := o.String()
			hub := wanted[at]
			if known, ok := r.justified(at, "kstatus"); ok {
				hub = known.hub
			}
			return found[0][at] == hub && (len(found) == 1 || found[1][at] == wanted[at])
		})
		switch late := time.Now().After(end); {
		case all && (late || len(unsettled) == 0):
			return found
		case late || len(unsettled) == 0:
			unsettled = r.objects
		}
	}
}

// statuses are what kstatus computes of objects of one side.
func (r *corpusRun) statuses(at *bed.Plane, objects []corpusObject) map[string]string {
	found := map[string]string{}
	for _, o := range objects {
		live := object(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
		err := at.Client.Get(r.t.Context(), client.ObjectKeyFromObject(live), live)
		if err != nil {
			found[o.String()] = err.Error()
			continue
		}
		is, err := status.Compute(live)
		if err != nil {
			found[o.String()] = err.Error()
			continue
		}
		found[o.String()] = is.Status.String()
	}
	return found
}

// corpusWaits are how users wait for the objects of a kind.
var corpusWaits = map[string][]string{
	"Deployment":            {"rollout status", "wait --for=condition=Available"},
	"StatefulSet":           {"rollout status"},
	"DaemonSet":             {"rollout status"},
	"Job":                   {"wait --for=condition=Complete"},
	"Pod":                   {"wait --for=condition=Ready"},
	"PersistentVolumeClaim": {"wait --for=jsonpath={.status.phase}=Bound"},
}

// waits runs what users wait with: of all objects together, and if that fails of each.
func (r *corpusRun) waits(at *bed.Plane) map[string]string {
	r.t.Helper()
	found, together := map[string]string{}, map[string][]string{}
	for _, o := range r.objects {
		for _, command := range corpusWaits[o.GetKind()] {
			if _, ok := r.justified(o.String(), "wait"); ok || corpusUnready[o.String()] != "" {
				r.waitForOne(at, command+" --timeout=2s", o.String(), found) // it never is
				continue
			}
			together[command] = append(together[command], o.String())
		}
	}
	for command, objects := range together {
		if _, err := r.kubectl(at, command+" --timeout=300s "+strings.Join(objects, " ")); err == nil {
			continue
		}
		for _, o := range objects {
			r.waitForOne(at, command+" --timeout=30s", o, found)
		}
	}
	return found
}

// waitForOne waits for one object, and records if that fails.
func (r *corpusRun) waitForOne(at *bed.Plane, command, o string, found map[string]string) {
	if _, err := r.kubectl(at, command+" "+o); err != nil {
		found[o] += waitFailure(strings.Split(command, " --timeout")[0])
	}
}

// waitFailure is what is recorded of a command that fails.
func waitFailure(command string) string { return command + " fails" }

// diffHeader is what `kubectl diff` prints of an object that differs.
var diffHeader = regexp.MustCompile(`(?m)^diff .*/(\S+)$`)

// diffs are the objects that differ from their files.
func (r *corpusRun) diffs(at *bed.Plane) map[string]string {
	r.t.Helper()
	args := "diff -f " + filepath.Join(r.dir, "files")
	if r.method == serverSide {
		args += " --server-side --field-manager=ci"
	}
	out, err := r.kubectl(at, args)
	files := diffHeader.FindAllStringSubmatch(out, -1)
	if err != nil && len(files) == 0 {
		r.t.Errorf("%s: %v\n%s", at.Dir(), err, out)
	}
	found := map[string]string{}
	for _, o := range r.objects {
		gvk := o.GroupVersionKind()
		name := strings.TrimPrefix(strings.Join([]string{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()}, "."), ".")
		if slices.ContainsFunc(files, func(f []string) bool { return f[1] == name }) {
			found[o.String()] = "differs"
		}
	}
	return found
}

// helm runs Helm with the chart.
func (r *corpusRun) helm(at *bed.Plane, args string) {
	r.t.Helper()
	chart := filepath.Join(r.dir, "chart")
	if _, err := os.Stat(chart); err != nil {
		if err := os.CopyFS(chart, os.DirFS("testdata/corpus-chart")); err != nil {
			r.t.Fatal(err)
		}
		r.write("chart/templates", r.workloads)
	}
	command, flags, _ := strings.Cut(args, " ")
	arguments := "corpus " + chart
	if command == "uninstall" {
		arguments = "corpus"
	}
	if out, err := r.tryRun(at.ControlPlane.AdminKubeconfig(), "helm -n "+r.ns+" "+command+" "+arguments+" "+flags); err != nil {
		r.t.Errorf("%s: helm %s: %v\n%s", filepath.Base(at.Dir()), args, err, out)
	}
}

// upgradeAndUninstall changes the release, and removes it: nothing of it is left but what Helm leaves, its hooks.
func (r *corpusRun) upgradeAndUninstall(t *testing.T) {
	t.Helper()
	at := r.w.Hub
	r.helm(at, "upgrade --wait --wait-for-jobs --timeout=8m --set image.tag=2 --set replicas=3")
	if out, err := r.kubectl(at, "rollout status deployment/corpus-release --timeout=300s"); err != nil {
		t.Errorf("after the upgrade: %v\n%s", err, out)
	}
	r.helm(at, "uninstall --wait --timeout=8m")
	left := slices.DeleteFunc(slices.Clone(r.objects), func(o corpusObject) bool {
		return o.GetKind() == "PersistentVolumeClaim" || o.GetAnnotations()["helm.sh/hook"] != ""
	})
	eventually(t, "nothing of the release is left", func() error {
		left = slices.DeleteFunc(left, func(o corpusObject) bool { return !strings.Contains(r.w.clustersWith(t, sameKey(o)), "east") })
		return errorUnless(len(left) == 0, "%v", left)
	})
}
