// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/daemon/internal/addresses"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/daemon/internal/server"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/test/source"
)

// spareTime is what a stop needs beside its limits: for the disk, and for kubelet.
const spareTime = 5 * time.Second

// slowAPI answers the read of the DaemonSet in the last moment.
type slowAPI struct {
	client.Client

	answersAfter time.Duration
	firstRead    time.Time
}

// Get implements client.Client.
func (s *slowAPI) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.firstRead.IsZero() {
		s.firstRead = time.Now()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(s.firstRead.Add(s.answersAfter))):
	}
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetAnnotations(map[string]string{v1alpha1.CleanUpAnnotation: "uid-1"})
	return nil
}

// hangingKernel answers no request.
type hangingKernel struct{ netwatcher.Kernel }

// State implements netwatcher.Kernel.
func (hangingKernel) State(ctx context.Context) (*netwatcher.State, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// newSlowDaemon returns a daemon of which each step takes as long as it may.
func newSlowDaemon(t *testing.T, installs bool, reports *int) *daemon {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal.db"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	o := &options{install: installs, cniBin: dir, cniConf: dir, namespace: "patchbay-system", daemonSet: "patchbayd", releaseTimeout: defaultReleaseTimeout}
	api := &slowAPI{answersAfter: removalTimeout - 10*time.Millisecond}
	links := netwatcher.Config{Kernel: hangingKernel{}, Firewall: noFilters{}, SourceGuard: noGuard{}, Pods: noPods{}, Log: logr.Discard()}
	return &daemon{
		options: o, log: logr.Discard(),
		allocator: &allocatorManager{options: o, log: logr.Discard(), deferred: addresses.NewDeferredAllocator()},
		installation: &installation{
			options: o, log: logr.Discard(), conn: &kubeclient.Connection{Direct: api}, journal: j, links: links,
			removePacketFilters: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			},
			report: func(ctx context.Context, _ []v1.HostLink, _ metav1.Condition) error {
				*reports++
				<-ctx.Done()
				return ctx.Err()
			},
		},
	}
}

// A daemon that is killed before it has reported leaves a node that an administrator has to visit. So even if each step
// takes as long as it may, the stop ends within the Pod's termination grace period.
func TestStopFitsGracePeriod(t *testing.T) {
	t.Parallel()
	grace := gracePeriod(t)
	for name, installs := range map[string]bool{"Installed": true, "NotInstalled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reports := 0
				d := newSlowDaemon(t, installs, &reports)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				hung := make(chan struct{})
				defer close(hung)
				begin := time.Now()
				err := d.stop(ctx, ctx, func() error {
					<-hung
					return nil
				})
				took := time.Since(begin)
				if atLeast := partsTimeout + removalTimeout - time.Second + cleanUpTimeout + reportTimeout; err == nil || reports == 0 || took < atLeast {
					t.Errorf("the stop took %s with %d reports and %v, want at least %s, because each step hangs", took, reports, err, atLeast)
				}
				// No allocator is open, so that there was nothing to release.
				if took += defaultReleaseTimeout + spareTime; took > grace {
					t.Errorf("the stop may take %s with %s to spare, and terminationGracePeriodSeconds in deployments/daemon/daemonset.yaml is %s: "+
						"a limit must be shorter, or the grace period longer", took, spareTime, grace)
				}
			})
		})
	}
	if limit := server.DefaultLimits().ShutdownGracePeriod + spareTime; limit > partsTimeout {
		t.Errorf("requests that are canceled after %s have less than %s for their roll-back within %s", limit-spareTime, spareTime, partsTimeout)
	}
}

// gracePeriod returns the grace period of the node daemon's manifest. The operator rejects templates with less.
func gracePeriod(t *testing.T) time.Duration {
	t.Helper()
	file, err := source.Path("deployments", "daemon", "daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ds := appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(text, &ds); err != nil {
		t.Fatal(err)
	}
	seconds := ds.Spec.Template.Spec.TerminationGracePeriodSeconds
	if seconds == nil {
		t.Fatal("terminationGracePeriodSeconds is missing, and Kubernetes' default of 30 s is too short")
	}
	return time.Duration(*seconds) * time.Second
}

// The daemon waits for its parts, and not longer than it may.
func TestWaitForParts(t *testing.T) {
	t.Parallel()
	failed := errors.New("port in use")
	for name, tc := range map[string]struct {
		reason string
		stops  bool
		takes  time.Duration
		result error
		want   error
	}{
		"Failed":  {"A part that fails ends the daemon.", false, time.Hour, failed, failed},
		"Stopped": {"All parts end in time.", true, partsTimeout - time.Second, nil, nil},
		"Late":    {"The error of the last moment counts.", true, partsTimeout - time.Second, failed, failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.stops {
					cancel()
				}
				begin := time.Now()
				err := waitForParts(ctx, func() error {
					time.Sleep(tc.takes)
					return tc.result
				})
				if !errors.Is(err, tc.want) || time.Since(begin) != tc.takes {
					t.Errorf("%s Got %v after %s, want %v after %s", tc.reason, err, time.Since(begin), tc.want, tc.takes)
				}
			})
		})
	}
}
