// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// statefulObjects are a Deployment with a claim, and the policy by which both are placed.
func statefulObjects(driver, accessMode, clusters string) string {
	web := strings.Replace(plainDeployment("web", 1), "      containers:",
		"      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n      containers:", 1)
	return strings.NewReplacer("DRIVER", driver, "MODE", accessMode, "CLUSTERS", clusters).Replace(`
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: all}
spec: {clusters: {names: [CLUSTERS]}, volumes: Transfer, move: {stable: 1s}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [MODE], storageClassName: DRIVER, resources: {requests: {storage: 1Gi}}}
---
`) + web
}

// kcp 5: a stateful workload moves with its volume, which no two clusters attach at a time unless it allows that.
func TestKCP5Stateful(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, accessMode, refusal string
		local                       bool
		westDomain                  string
	}{
		"ReadWriteOnce": {reason: "One cluster stops and detaches before the other one starts.", accessMode: "ReadWriteOnce"},
		"ReadWriteMany": {reason: "Both clusters attach it during the move.", accessMode: "ReadWriteMany"},
		"local": {
			reason: "Another cluster cannot reach the disk of a node.", accessMode: "ReadWriteOnce",
			local: true, refusal: "local to nodes",
		},
		"another domain": {
			reason: "The storage of the other cluster is another one.", accessMode: "ReadWriteOnce",
			westDomain: "rack-2", refusal: `must have the property storage.`,
		},
	}
	w := shared
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			driver := &fakeDriver{local: tc.local, westDomain: tc.westDomain}
			driver.start(t, w, ns)
			checkInvariants(t, w, ns).allowUnavailable = tc.accessMode == "ReadWriteOnce" // the driver checks that it stops first
			w.apply(t, w.Hub.Client, ns, statefulObjects(driver.name, tc.accessMode, "east"))
			web, data := object("apps/v1", "Deployment", ns, "web"), object("v1", "PersistentVolumeClaim", ns, "data")
			driver.awaitAttached(t, "east")
			all := &v1alpha1.Placement{}
			all.Namespace, all.Name = ns, "all"
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"clusters":{"names":["west"]}}}`))
			if err := w.Hub.Client.Patch(t.Context(), all, patch); err != nil {
				t.Fatal(err)
			}
			if tc.refusal != "" {
				w.awaitPlacedReason(t, web, v1alpha1.ReasonVolumesRefused)
				eventually(t, "the refusal of web says why", func() error {
					a, err := w.assignment(t.Context(), ns, "Deployment", "web")
					if err != nil {
						return err
					}
					return errorUnless(strings.Contains(fmt.Sprint(a.Status.Conditions), tc.refusal), "conditions %v", a.Status.Conditions)
				})
				w.awaitClustersWith(t, data, "east")
				driver.awaitAttached(t, "east")
				return
			}
			w.awaitClustersWith(t, web, "west")
			w.awaitClustersWith(t, data, "west")
			driver.awaitAttached(t, "west")
			if got := driver.wasShared(); got != (tc.accessMode == "ReadWriteMany") {
				t.Errorf("%s\nboth clusters attached the volume at a time: got %v", tc.reason, got)
			}
			eventually(t, "east has no volume", func() error {
				list := &corev1.PersistentVolumeList{}
				if err := w.Clusters["east"].Client.List(t.Context(), list); err != nil {
					return err
				}
				for _, pv := range list.Items {
					if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver.name {
						return fmt.Errorf("PersistentVolume %s", pv.Name)
					}
				}
				return nil
			})
		})
	}
}
