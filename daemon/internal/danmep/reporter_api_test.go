// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package danmep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A quota rejects the DanmEp of a Pod that runs. The node names the Pod and the quota until the DanmEp exists.
func TestPodOverItsQuotaIsReported(t *testing.T) {
	t.Parallel()
	var isFull atomic.Bool
	isFull.Store(true)
	b := newTestPublisher(t, apitest.Start(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if isFull.Load() {
				return apierrors.NewForbidden(schema.GroupResource{Group: "danm.io", Resource: "danmeps"}, o.GetName(), errors.New("exceeded quota: few"))
			}
			return c.Create(ctx, o, opts...)
		},
	})
	r := &Reporter{Records: b.journal.List, Failure: b.Failure}
	now := time.Now()
	b.Publish(b.rec)
	kubetest.Eventually(t, "the report of the Pod", func(context.Context) error {
		now = now.Add(reportDelay)
		c := r.condition(now)
		if c == nil || !strings.Contains(c.Message, "1 Pods are attached and have no DanmEp: "+b.rec.PodNamespace+"/"+b.rec.PodName) || !strings.Contains(c.Message, "exceeded quota: few") {
			return fmt.Errorf("got %+v", c)
		}
		return nil
	})
	isFull.Store(false)
	b.awaitPublished(t)
	if c := r.condition(now.Add(reportDelay)); c != nil {
		t.Errorf("after the DanmEp exists: got %+v, want no condition", c)
	}
}
