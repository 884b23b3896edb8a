// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// afterBackupEdits are what a person changes after the backup, in each of the mixed objects, and how the dry
// run names the difference. The new image makes new Pods, which the backup's would replace.
var afterBackupEdits = []struct{ object, old, new, differs string }{
	{"Deployment shop/web", "replicas: 4", "replicas: 5", "spec.replicas: 5 in the cluster, 4 at the hub"},
	{"Deployment shop/web", "app:1", "app:2", "spec.template.spec.containers: another value in the cluster, another value at the hub"},
	{"StatefulSet shop/db", "replicas: 2", "replicas: 3", "spec.replicas: 3 in the cluster, 2 at the hub"},
	{"DaemonSet shop/node", "{name: node}\nspec:\n", "{name: node}\nspec:\n  minReadySeconds: 1\n", "spec.minReadySeconds: 1 in the cluster, nothing at the hub"},
	{"ConfigMap shop/config", "{a: b}", "{a: c}", `data.a: "c" in the cluster, "b" at the hub`},
	{"Service shop/web", "ports: [{port: 80}]", "ports: [{port: 80}]\n  publishNotReadyAddresses: true", "spec.publishNotReadyAddresses: true in the cluster, nothing at the hub"},
	{"PersistentVolumeClaim shop/data", "{name: data}", "{name: data, labels: {edition: second}}", `metadata.labels: {"edition":"second"} in the cluster, nothing at the hub`},
	{"Widget shop/gear", "size: 1", "size: 2", "spec.size: 2 in the cluster, 1 at the hub"},
}

// Safety, what a user does: restores the hub from a backup, after edits, a removal, and a namespace
// that was first placed since. Each Work that is not as the backup has it is halted, others go on.
// The commands of docs/placement.md bring the hub up to date: nothing is deleted, no object changes
// in its cluster, and no Pod restarts.
func TestSafetyHubRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := &restorer{user: &user{terminal: &terminal{t: t, dir: t.TempDir()}, w: w, ns: "shop"}}
	w.installWidgets(t)
	u.write("shop", objectsOfAllKinds+"---\n"+plainConfigMap("old")+"---\n"+plainConfigMap("untouched"))
	u.runAtHub("kubectl apply -f manifests")
	u.settled("shop")
	backup, data := filepath.Join(t.TempDir(), "etcd"), w.Hub.ControlPlane.EtcdData()
	w.whileHubStopped(t, func() error { return os.CopyFS(backup, os.DirFS(data)) })

	edited := objectsOfAllKinds
	for _, e := range afterBackupEdits {
		edited = strings.Replace(edited, e.old, e.new, 1)
	}
	u.write("shop", edited+"---\n"+plainConfigMap("untouched"))
	u.write("cart", objectsOfAllKinds)
	u.runAtHub("kubectl apply -f manifests")
	u.runAtHub("kubectl delete configmap old -n shop")
	u.settled("shop")
	u.settled("cart")
	before := u.state()
	log, err := w.Clusters["east"].AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	w.whileHubStopped(t, func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup))) })
	checkInvariants(t, w, "shop", "cart") // of the restored hub: what it had before is checked by its state and UIDs

	w.awaitMismatch(t, true)
	u.awaitOrphans(len(objectsIn("cart")))
	u.runAtHub(`kubectl patch configmap untouched -n shop --type=merge -p '{"data":{"a":"later"}}'`) // its Work is not halted
	u.awaitData("untouched", "later")
	u.runAtHub(`kubectl patch configmap untouched -n shop --type=merge -p '{"data":{"a":"b"}}'`) // as its manifest says
	u.awaitData("untouched", "b")
	u.runPage(u.fromPage("kubectl patchbay hub resume"), []instruction{
		{"kubectl patchbay hub resume --take=cluster", u.listsEdits},
		{"kubectl delete configmap old -n shop --wait=false", func(string) {}},
		{"kubectl patchbay hub resume --take=cluster", u.listsRemoval},
		{"kubectl patchbay hub resume --take=cluster --yes", func(string) {}},
		{"kubectl wait --for=condition=HubMismatch=false cluster --all --timeout=5m", func(string) {
			w.awaitMismatch(t, false)
			eventually(t, "the hub lets old go", func() error {
				o := object("v1", "ConfigMap", "shop", "old")
				return client.IgnoreNotFound(unlessGone(w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)))
			})
		}},
		{"kubectl apply -f manifests", func(string) { w.awaitMismatch(t, true) }},
		{"kubectl patchbay hub resume --take=hub", u.listsCart},
		{"kubectl patchbay hub resume --take=hub --yes --confirm=3f9c2a71", func(string) { w.awaitMismatch(t, false) }},
	})
	u.awaitOrphans(0)
	u.settled("shop")
	u.settled("cart")
	if diff := cmp.Diff(before, u.state()); diff != "" {
		t.Errorf("objects in east: -before +after\n%s", diff)
	}
	checkNoDeletion(t, log)
	u.runAtHub("kubectl scale deployment web --replicas=6 -n shop")
	u.runAtHub("kubectl scale deployment web --replicas=6 -n cart")
	w.awaitHubAvailable(t, "shop", "web", 6)
	w.awaitHubAvailable(t, "cart", "web", 6)
}

// restorer is a person who keeps manifests in a folder, and restores the hub.
type restorer struct {
	*user
	digest string // of the last list, with its flag
}

// digest is how a command names the list that it answers: the page has one of its own.
var digest = regexp.MustCompile(`--confirm=[0-9a-f]+`)

// runAtHub runs a command at the hub, in the folder that has the manifests.
func (u *restorer) runAtHub(command string) string {
	u.t.Helper()
	return u.run(u.w.Hub.ControlPlane.AdminKubeconfig(), "cd "+u.dir+" && "+command)
}

// plainConfigMap is a ConfigMap as its users know it.
func plainConfigMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {a: b}\n"
}

// write writes the manifests of a namespace, with a policy that places all in east.
func (u *restorer) write(ns, objects string) {
	u.t.Helper()
	if err := os.MkdirAll(filepath.Join(u.dir, "manifests"), 0o700); err != nil {
		u.t.Fatal(err)
	}
	text := strings.NewReplacer("metadata: {name:", "metadata: {namespace: "+ns+", name:", "metadata:\n  name:", "metadata:\n  namespace: "+ns+"\n  name:").
		Replace(placement("p", "east") + "---\n" + objects)
	u.file(filepath.Join("manifests", ns+".yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n---\n"+text)
}

// settled waits until east has all of a namespace as the hub says, and its Pods are available.
func (u *restorer) settled(ns string) {
	u.t.Helper()
	for _, o := range objectsIn(ns) {
		u.w.awaitPlacedReason(u.t, o, v1alpha1.ReasonAsExpected)
	}
	for _, name := range []string{"deployment/web", "statefulset/db", "daemonset/node"} {
		u.runAtHub("kubectl rollout status " + name + " -n " + ns + " --timeout=220s")
	}
	eventually(u.t, "former Pods of "+ns+" are gone", func() error {
		var list corev1.PodList
		if err := u.w.Clusters["east"].Client.List(u.t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s: %s, deleted at %v", p.Name, p.Status.Phase, p.DeletionTimestamp)
			}
		}
		return nil
	})
}

// state is what east has: the objects without what agents and controllers note on them, and the Pods.
func (u *restorer) state() map[string]any {
	u.t.Helper()
	found := map[string]any{}
	for _, ns := range []string{"shop", "cart"} {
		found["Pods of "+ns] = u.w.podsInEast(u.t, ns)
		for _, o := range append(objectsIn(ns), object("v1", "ConfigMap", ns, "old")) {
			live, ok := sameKey(o).(*unstructured.Unstructured)
			if u.w.clustersWith(u.t, live) == "" || !ok {
				continue
			}
			found[printedName(o)] = map[string]any{
				"uid": live.GetUID(), "labels": live.GetLabels(), "spec": live.Object["spec"], "data": live.Object["data"],
			}
		}
	}
	return found
}

// awaitOrphans waits until so many AppliedWorks in east say that they are orphaned.
func (u *restorer) awaitOrphans(n int) {
	u.t.Helper()
	eventually(u.t, fmt.Sprintf("%d AppliedWorks are orphaned", n), func() error {
		found := 0
		for line := range strings.Lines(u.run(u.w.Clusters["east"].ControlPlane.AdminKubeconfig(), "kubectl get appliedworks --no-headers")) {
			// NAME KIND NAMESPACE OBJECT REVISION ORPHANED AGE; ORPHANED is empty for others.
			if fields := strings.Fields(line); len(fields) == 7 && fields[2] == "cart" && fields[5] == "True" {
				found++
			} else if len(fields) == 7 {
				return fmt.Errorf("unexpected %s", line)
			}
		}
		return errorUnless(found == n, "%d are", found)
	})
}

// awaitData waits until a ConfigMap of shop has a value in east.
func (u *restorer) awaitData(name, want string) {
	u.t.Helper()
	eventually(u.t, name+" in east is "+want, func() error {
		o := &corev1.ConfigMap{}
		if err := u.w.Clusters["east"].Client.Get(u.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o); err != nil {
			return err
		}
		return errorUnless(o.Data["a"] == want, "it is %q", o.Data["a"])
	})
}

// instruction is a command that the page is to have, and what must be so after it.
type instruction struct {
	command string
	check   func(printed string)
}

// runPage runs the commands of a page, one after the other, if they are those that the test knows.
func (u *restorer) runPage(page []string, steps []instruction) {
	u.t.Helper()
	var known, typed []string
	for _, s := range steps {
		known = append(known, s.command)
	}
	for _, command := range page {
		command, _, _ = strings.Cut(command, " #")
		typed = append(typed, strings.TrimSpace(command))
	}
	if diff := cmp.Diff(known, typed); diff != "" {
		u.t.Fatalf("commands: -test +page\n%s", diff)
	}
	for i, command := range page {
		steps[i].check(u.runAtHub(digest.ReplaceAllString(command, u.digest)))
	}
}

// listsEdits checks the dry run of --take=cluster: it lists each difference, and changes nothing.
func (u *restorer) listsEdits(string) {
	u.t.Helper()
	n := len(objectsIn("shop"))
	printed := u.dryRun("cluster", fmt.Sprintf("Works that are halted: %[1]d (kept as they are: %[1]d). Works that wait for them: 1\n", n))
	for _, e := range afterBackupEdits {
		_, of, found := strings.Cut(printed, "east  "+e.object+": stays as it is in east\n")
		of, _, _ = strings.Cut(of, "\neast  ")
		if !found || !strings.Contains(of, "      "+e.differs+"\n") && !strings.HasSuffix(of, "      "+e.differs) {
			u.t.Errorf("%s: want it listed with %q in\n%s", e.object, e.differs, printed)
		}
	}
	if want := "east  ConfigMap shop/old: is created in east when the others are answered\n"; !strings.Contains(printed, want) {
		u.t.Errorf("dry run: want %q in\n%s", want, printed)
	}
}

// listsRemoval checks that what is deleted again is not to be created any more.
func (u *restorer) listsRemoval(string) {
	u.t.Helper()
	u.dryRun("cluster", "east  ConfigMap shop/old: is removed from east when the others are answered\n")
}

// listsCart checks the dry run of --take=hub: of what was first placed after the backup nothing differs.
func (u *restorer) listsCart(string) {
	u.t.Helper()
	all := objectsIn("cart")
	printed := u.dryRun("hub", fmt.Sprintf("Works that are halted: %[1]d (the same: %[1]d). Works that wait for them: 0\n", len(all)))
	for _, o := range all {
		if want := "east  " + printedName(o) + ": is the same in east\n"; !strings.Contains(printed, want) {
			u.t.Errorf("dry run: want %q in\n%s", want, printed)
		}
	}
}

// dryRun repeats the command until it prints a line, as the page says, and checks that it answers no
// Work.
func (u *restorer) dryRun(take, line string) (printed string) {
	u.t.Helper()
	eventually(u.t, "the dry run prints "+line, func() error {
		printed = u.runAtHub("kubectl patchbay hub resume --take=" + take)
		u.digest = digest.FindString(printed)
		return errorUnless(strings.Contains(printed, line), "got %s, want %q", printed, line)
	})
	if works := u.runAtHub("kubectl get works -A -o yaml"); strings.Contains(works, v1alpha1.ResumeAnnotation+": "+take) {
		u.t.Errorf("the dry run has answered Works:\n%s", works)
	}
	u.w.awaitMismatch(u.t, true)
	return printed
}
