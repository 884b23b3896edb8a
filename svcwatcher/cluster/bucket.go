// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"hash/crc32"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// buckets bounds the index of DanmEps by Pod: each entry of an index costs more memory
// than a slim DanmEp, and nearly each Pod would have one.
const buckets = 4096

// bucket is where a name is among a few others.
func bucket(name string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))%buckets), 36)
}

// danmEps returns the cached DanmEps of a Pod name; nobody may change them.
func (r *Reconciler) danmEps(ctx context.Context, namespace, pod string) ([]v1.DanmEp, error) {
	var list v1.DanmEpList
	if err := r.cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byPod: bucket(pod)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list cached DanmEps of Pod %s: %w", pod, err)
	}
	var eps []v1.DanmEp
	for i := range list.Items {
		if list.Items[i].Spec.Pod == pod {
			eps = append(eps, list.Items[i])
		}
	}
	return eps, nil
}
