// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"hash/crc32"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/svcwatcher"
)

// Indexes of the caches.
const (
	// byLabel indexes Pods by each of their labels, as key=value.
	byLabel = "label"
	// byIP indexes Pods by their addresses in the Pod network, and EndpointSlices by the addresses
	// in them.
	byIP = "ip"
	// byPod indexes DanmEps by the bucket of their Pod's name.
	byPod = "pod"
	// bySelector indexes Services by the one label of their selector that indexedLabel returns, and
	// those with unreadable annotations by invalidSelector.
	bySelector = "selector"
	// byNetwork indexes Services by their networks.
	byNetwork = "network"
	// byService indexes EndpointSlices by the name of their Service.
	byService = "service"
)

// invalidSelector is not the text of any label.
const invalidSelector = "!"

// addIndexes adds the indexes and starts the informers, whether this replica leads or not.
func addIndexes(ctx context.Context, all cache.Cache) error {
	for _, i := range []struct {
		obj  client.Object
		name string
		keys func(client.Object) []string
	}{
		{&corev1.Pod{}, byLabel, func(o client.Object) []string { return labelTexts(o.GetLabels()) }},
		{&corev1.Pod{}, byIP, typedIndexer(podIPs)},
		{&discoveryv1.EndpointSlice{}, byIP, typedIndexer(sliceAddresses)},
		{&v1.DanmEp{}, byPod, typedIndexer(func(ep *v1.DanmEp) []string { return []string{podBucket(ep.Spec.Pod)} })},
		{&corev1.Service{}, bySelector, typedIndexer(selectorKeys)},
		{&corev1.Service{}, byNetwork, typedIndexer(networkKeys)},
		{&discoveryv1.EndpointSlice{}, byService, func(o client.Object) []string { return []string{o.GetLabels()[discoveryv1.LabelServiceName]} }},
	} {
		if err := all.IndexField(ctx, i.obj, i.name, i.keys); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.obj, i.name, err)
		}
	}
	for obj := range CacheByObject() {
		if _, err := all.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return nil
}

// typedIndexer returns an index function of a function for one kind.
func typedIndexer[T client.Object](keys func(T) []string) func(client.Object) []string {
	return func(o client.Object) []string {
		if obj, ok := o.(T); ok {
			return keys(obj)
		}
		return nil
	}
}

// podIPs returns a Pod's addresses in the Pod network.
func podIPs(pod *corev1.Pod) []string {
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

func sliceAddresses(slice *discoveryv1.EndpointSlice) []string {
	var all []string
	for _, e := range slice.Endpoints {
		all = append(all, e.Addresses...)
	}
	return all
}

func selectorKeys(svc *corev1.Service) []string {
	switch j := svcwatcher.Classify(svc); j.Class {
	case svcwatcher.Managed:
		return []string{indexedLabel(j.Request.Selector)}
	case svcwatcher.Invalid:
		return []string{invalidSelector}
	default:
		return nil
	}
}

func networkKeys(svc *corev1.Service) []string {
	var refs []network.Ref
	if j := svcwatcher.Classify(svc); j.Class == svcwatcher.Managed {
		refs = j.Request.Networks
	}
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return names
}

// indexedLabel returns the one label that connects Services and Pods in the indexes: the longest of
// the selector, because a long value is seldom shared by many Pods. The other labels are then
// compared for each Pod.
func indexedLabel(selector map[string]string) string {
	best := ""
	for key, value := range selector {
		if text := labelText(key, value); len(text) > len(best) || len(text) == len(best) && text < best {
			best = text
		}
	}
	return best
}

func labelText(key, value string) string { return key + "=" + value }

func labelTexts(labels map[string]string) []string {
	texts := make([]string, 0, len(labels))
	for key, value := range labels {
		texts = append(texts, labelText(key, value))
	}
	return texts
}

// podBuckets bounds the index of DanmEps by Pod. An index entry needs more memory than a stripped
// DanmEp, and nearly every Pod would have one.
const podBuckets = 4096

// podBucket returns the bucket of a name, which it shares with a few others.
func podBucket(name string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))%podBuckets), 36)
}
