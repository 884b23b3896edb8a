// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// A hub that does not know the room gets the rest, and the room after it was upgraded.
func TestReportsRoomAfterUpgradeOfHub(t *testing.T) {
	t.Parallel()
	now, knows, sent := time.Unix(1_000_000, 0), false, []string(nil)
	hub := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceApply: func(_ context.Context, _ client.Client, _ string, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
			raw, err := json.Marshal(o)
			if err != nil {
				return err
			}
			hasRoom := strings.Contains(string(raw), `"room"`)
			sent = append(sent, fmt.Sprintf("room %t", hasRoom))
			if hasRoom && !knows {
				return errors.New(".status.room: field not declared in schema")
			}
			return nil
		},
	})
	r := &clusterReporter{hub: hub, name: "east", now: func() time.Time { return now }}
	for _, step := range []struct {
		reason string
		after  time.Duration
		knows  bool
		want   string
	}{
		{"The hub rejects the room, and gets the rest.", 0, false, "[room true room false]"},
		{"Nothing has changed.", time.Minute, true, "[]"},
		{"The hub may have been upgraded.", roomRetryInterval, true, "[room true]"},
		{"It has all.", roomRetryInterval, true, "[]"},
	} {
		now, knows, sent = now.Add(step.after), step.knows, nil
		if err := r.send(t.Context(), v1alpha1.ClusterStatus{Room: &v1alpha1.Room{}}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(sent); got != step.want {
			t.Errorf("%s\ngot %s, want %s", step.reason, got, step.want)
		}
	}
}
