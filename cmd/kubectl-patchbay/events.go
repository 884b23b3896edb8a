// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventPatience is how long to wait for an Event of what is done: it is written
// besides, and may be a little late or not come at all.
const eventPatience = 3 * time.Second

// seen are how often each Event has happened.
type seen map[types.UID]int32

// events returns the Events on an object so far.
func events(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) (seen, error) {
	list, err := listEvents(ctx, c, obj)
	if err != nil {
		return nil, err
	}
	s := seen{}
	for i := range list {
		s[list[i].UID] = list[i].Count
	}
	return s, nil
}

// await waits for an Event with a reason that was not seen before, and returns what
// it says; nothing when none comes.
func await(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, before seen, reason string) (text string) {
	ctx, cancel := context.WithTimeout(ctx, eventPatience)
	defer cancel()
	_ = poll(ctx, func() (bool, error) {
		list, err := listEvents(ctx, c, obj)
		for i := range list {
			e := &list[i]
			if count, ok := before[e.UID]; e.Reason == reason && (!ok || count != e.Count) {
				text = e.Message
				return true, nil
			}
		}
		return false, err
	})
	return text
}

// listEvents reads the Events on an object; those on a cluster-scoped one are in the
// namespace default.
func listEvents(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) ([]corev1.Event, error) {
	namespace := obj.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	list := &corev1.EventList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(obj.UID)}); err != nil {
		return nil, fmt.Errorf("list Events in %s: %w", namespace, err)
	}
	return list.Items, nil
}
