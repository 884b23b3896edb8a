// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// killedCommand is a command of kubectl patchbay that dies of each of its writes, before it hears of it.
type killedCommand struct {
	*terminal

	kubeconfig string

	mu      sync.Mutex
	running *exec.Cmd
	writes  []string // that it died of
}

// onWrite is called for each write.
func (k *killedCommand) onWrite(r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == nil {
		return
	}
	k.writes = append(k.writes, r.Method+" "+r.URL.Path)
	_ = k.running.Process.Kill() // it has ended, or is killed
}

// repeat runs the command again and again until it ends well, and returns the writes that it died of.
func (k *killedCommand) repeat(t *testing.T, args ...string) []string {
	t.Helper()
	k.mu.Lock()
	k.writes = nil
	k.mu.Unlock()
	eventually(t, strings.Join(args, " ")+" ends well", func() error { return k.runOnce(t, args) })
	return k.writes
}

func (k *killedCommand) runOnce(t *testing.T, args []string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var out strings.Builder
	cmd := exec.CommandContext(ctx, k.program("kubectl-patchbay"), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = k.dir, append(os.Environ(), k.env(k.kubeconfig)...), &out, &out
	k.mu.Lock()
	err := cmd.Start()
	k.running = cmd
	k.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = nil
	switch {
	case strings.Contains(out.String(), "no object among those is placed"): // it was killed after the last write
		return nil
	case err != nil && cmd.ProcessState.Exited(): // not killed
		t.Errorf("%v: %v\n%s", args, err, out.String())
	}
	return err
}

// Take over and leave: the commands are killed at each of their writes, at the hub and in the cluster, and repeated. The
// same objects and Pods run all the time, and none is left half-way.
func TestImportKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	w, east := shared, shared.Clusters["east"]
	ns := apitest.Name("test")
	if err := east.Client.Create(t.Context(), object("v1", "Namespace", "", ns)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := east.Client.Delete(context.Background(), object("v1", "Namespace", "", ns)); err != nil {
			t.Error(err)
		}
	})
	checkInvariants(t, w, ns)
	k := &killedCommand{terminal: &terminal{t: t, dir: t.TempDir()}}
	gates := map[*bed.Plane]*bed.WriteInterceptor{}
	for _, at := range []*bed.Plane{w.Hub, east.Plane} {
		gate, err := at.NewWriteInterceptor(k.onWrite, "importer", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		closeInterceptor(t, gate)
		gates[at] = gate
	}
	k.kubeconfig = gates[w.Hub].Kubeconfig
	k.run(east.ControlPlane.AdminKubeconfig(), "kubectl apply -n "+ns+" -f - <<'END'"+plainDeployment("web", 2)+`
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
END
kubectl rollout status -n `+ns+" deployment/web --timeout=220s")
	objects := []client.Object{object("apps/v1", "Deployment", ns, "web"), object("v1", "ConfigMap", ns, "settings")}
	uids, pods, before := w.uids(t, objects), w.podsInEast(t, ns), w.userFields(t, objects)

	died := k.repeat(t, "import", ns, "--in=east", "--in-kubeconfig="+gates[east.Plane].Kubeconfig, "--yes")
	if len(died) < 2+3*len(objects) { // the namespace twice; each object is labelled, created and settled
		t.Errorf("import: it died of %d writes, want some for each step: %q", len(died), died)
	}
	w.checkSame(t, ns, objects, uids, pods, before)
	w.awaitHubAvailable(t, ns, "web", 2)

	died = k.repeat(t, "export", ns, "--in=east", "--yes")
	if len(died) < 2*len(objects)-1 { // each object is annotated and deleted; nothing is left to repeat after the last
		t.Errorf("export: it died of %d writes, want some for each step: %q", len(died), died)
	}
	for _, o := range objects {
		eventually(t, printedName(o)+" is gone from the hub", func() error { return w.checkGoneFromHub(t, o) })
	}
	w.checkSame(t, ns, objects, uids, pods, before)
	for _, o := range objects {
		live, ok := sameKey(o).(*unstructured.Unstructured)
		if !ok || w.clustersWith(t, live) != "east" {
			t.Fatalf("%s is not in east alone", printedName(o))
		}
		checkLetGo(t, live)
	}
}
