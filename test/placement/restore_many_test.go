// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// Safety 4, hub term: the hub is restored from a backup that is older than all of its 1,001 Works.
// All are halted, the dry run lists each, and one command lets all go on with what the backup
// says. No object is deleted or made again, and no Pod restarts.
//
// Each Work costs some 20 writes, which keep two CPUs busy for about a minute. So no other test
// runs beside it.
func TestSafetyManyWorksGoOn(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace(t)
	x := checkInvariants(t, w, ns)
	x.allowStaleConditions.Store(true) // each condition waits for a thousand others
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	all := manyObjects(ns)
	const pods = 3
	w.apply(t, w.Hub.Client, ns, strings.Replace(deployment("web", pods, "east", ""), "  name: web\n", "  name: web\n  labels: {state: early}\n", 1))
	forEach(t, all[1:], func(o client.Object) error { return w.Hub.Client.Create(t.Context(), o) })
	before := w.awaitState(t, all, "early")
	w.awaitHubAvailable(t, ns, "web", pods)
	podsBefore := w.podsInEast(t, ns)
	if len(podsBefore) != pods {
		t.Fatalf("Pods in east: got %v, want %d", podsBefore, pods)
	}

	backup, then := filepath.Join(t.TempDir(), "etcd"), x.liveObjects(t, w)
	w.whileHubStopped(t, func() error { return os.CopyFS(backup, os.DirFS(w.Hub.ControlPlane.EtcdData())) })
	forEach(t, all, func(o client.Object) error {
		return w.Hub.Client.Patch(t.Context(), sameKey(o), client.RawPatch(types.MergePatchType, []byte(lateState(o))))
	})
	w.awaitState(t, all, "late")
	w.replaceEtcdData(t, x, then, func(data string) error { return os.CopyFS(data, os.DirFS(backup)) })
	w.awaitMismatch(t, true)
	w.awaitWorks(t, all, "halted", func(s *v1alpha1.WorkStatus) bool { return s.Halted != nil && s.Halted.Record != "" })

	hub, admin := &terminal{t: t, dir: t.TempDir()}, w.Hub.ControlPlane.AdminKubeconfig()
	hub.checkDryRun(admin, all)
	w.awaitMismatch(t, true)
	w.awaitState(t, all, "late")
	start := time.Now()
	printed := hub.resume(admin, "--take=hub")
	if want := fmt.Sprintf("%[1]d of %[1]d Works are answered", len(all)); !strings.Contains(printed, want) {
		t.Errorf("resume: got %s, want %q", printed[max(0, len(printed)-500):], want)
	}
	w.awaitWorks(t, all, "applied", func(s *v1alpha1.WorkStatus) bool {
		return s.Halted == nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionApplied)
	})
	w.awaitMismatch(t, false)
	t.Logf("%d Works went on within %s", len(all), time.Since(start).Round(pollInterval))
	w.apply(t, w.Hub.Client, ns, settings("new", "east")) // while a Work is halted it would wait
	w.awaitClustersWith(t, object("v1", "ConfigMap", ns, "new"), "east")

	w.awaitHubAvailable(t, ns, "web", pods)
	if diff := cmp.Diff(before, w.awaitState(t, all, "early")); diff != "" {
		t.Errorf("UIDs in east: -before +after\n%.2000s", diff)
	}
	if diff := cmp.Diff(podsBefore, w.podsInEast(t, ns)); diff != "" {
		t.Errorf("Pods in east: -before +after\n%s", diff)
	}
	checkNoDeletion(t, log)
}

// manyObjects are the Deployment web and 1,000 ConfigMaps for east, in the state early.
func manyObjects(ns string) []client.Object {
	all := []client.Object{object("apps/v1", "Deployment", ns, "web")}
	for i := range 1000 {
		o := object("v1", "ConfigMap", ns, fmt.Sprintf("c-%04d", i))
		o.SetAnnotations(map[string]string{v1alpha1.ClustersAnnotation: "east"})
		o.Object["data"] = map[string]any{"state": "early"}
		all = append(all, o)
	}
	return all
}

// stateField is the field of an object that is edited. That of the Deployment is not its Pods'.
func stateField(o client.Object) []string {
	if o.GetObjectKind().GroupVersionKind().Kind == "Deployment" {
		return []string{"metadata", "labels", "state"}
	}
	return []string{"data", "state"}
}

// lateState is a merge patch that edits an object.
func lateState(o client.Object) string {
	fields := stateField(o)
	return `{"` + strings.Join(fields, `":{"`) + `":"late"` + strings.Repeat("}", len(fields))
}

// forEach does something with each object, with 16 at a time.
func forEach(t *testing.T, all []client.Object, do func(client.Object) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for _, o := range all {
		g.Go(func() error { return do(o) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// resume runs the command that kubectl patchbay hub resume proposes, and both again while what is
// halted changes.
func (s *terminal) resume(kubeconfig, flags string) (printed string) {
	s.t.Helper()
	eventually(s.t, "the command that the list proposes answers it", func() error {
		_, proposed, ok := strings.Cut(s.run(kubeconfig, "kubectl patchbay hub resume "+flags), "To answer them: ")
		if !ok {
			return errors.New("no command is proposed")
		}
		var err error
		printed, err = s.tryRun(kubeconfig, proposed)
		return errorUnless(err == nil, "%s: %s (%v)", proposed, printed, err)
	})
	return printed
}

// checkDryRun checks that the command without --yes says of each object what changes. A Work that
// the hub writes right after the restore may count as the same for a moment.
func (s *terminal) checkDryRun(kubeconfig string, all []client.Object) {
	s.t.Helper()
	var printed string
	eventually(s.t, "the dry run counts all Works", func() error {
		printed = s.run(kubeconfig, "kubectl patchbay hub resume --take=hub")
		want := fmt.Sprintf("Works that are halted: %[1]d (changed: %[1]d). Works that wait for them: 0\n", len(all))
		return errorUnless(strings.Contains(printed, want), "got %s, want %q", printed[max(0, len(printed)-500):], want)
	})
	for _, o := range all {
		want := fmt.Sprintf("east  %s: becomes in east what the hub says\n      %s: \"late\" in the cluster, \"early\" at the hub\n",
			printedName(o), strings.Join(stateField(o), "."))
		if !strings.Contains(printed, want) {
			s.t.Errorf("dry run: want %q", want)
		}
	}
}

// printedName is what the command calls an object.
func printedName(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// checkNoDeletion checks that the agent has deleted nothing in its cluster.
func checkNoDeletion(t *testing.T, log *bed.AuditReader) {
	t.Helper()
	writes, err := log.Writes(`"verb":"delete`)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range writes {
		if one.User == bed.AgentUser && strings.HasPrefix(one.Verb, "delete") {
			t.Errorf("deleted: %s", one)
		}
	}
}
