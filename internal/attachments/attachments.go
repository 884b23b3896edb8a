// SPDX-License-Identifier: Apache-2.0

// Package attachments finds the Pods that are attached to networks, for the operator and kubectl patchbay, which uninstall Patchbay.
package attachments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// pageSize is how many objects the API server sends at once.
const pageSize = 500

// Attachment is an interface of a Pod, and the DanmEp that records it.
type Attachment struct {
	// DanmEp is the record, and UID is its UID.
	DanmEp types.NamespacedName
	UID    types.UID
	// Pod and Node have the interface, Network is what it is attached to. A node may have written any text there, so they
	// are without characters that control a terminal. No name of an object has such characters.
	Pod, Node, Network string
	// PodExists is whether the Pod still exists.
	PodExists bool
	podUID    types.UID
	// InDeletion and HasFinalizer tell the state of the DanmEp.
	InDeletion, HasFinalizer bool
}

// List returns all attachments, sorted by Pod. It returns none if the definition of DanmEps does not exist.
func List(ctx context.Context, c client.Reader) ([]Attachment, error) {
	var all []Attachment
	err := EachPage(ctx, c, pageSize, func() *v1.DanmEpList { return &v1.DanmEpList{} }, func(list *v1.DanmEpList) {
		for i := range list.Items {
			ep := &list.Items[i]
			all = append(all, Attachment{
				DanmEp: client.ObjectKeyFromObject(ep), UID: ep.UID, podUID: types.UID(ep.Spec.PodUID),
				Pod:          text.OneLine(ep.Namespace + "/" + ep.Spec.Pod),
				Node:         text.OneLine(ep.Spec.Host),
				Network:      text.OneLine(networkName(ep)),
				InDeletion:   ep.DeletionTimestamp != nil,
				HasFinalizer: slices.Contains(ep.Finalizers, v1.NodeFinalizer),
			})
		}
	})
	if isMissing, err := IsMissingKind(ctx, c, "danmeps", err); isMissing || err != nil {
		return nil, err
	}
	if err := findPods(ctx, c, all); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Attachment) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.DanmEp.Name, b.DanmEp.Name))
	})
	return all, nil
}

// findPods sets PodExists. DANM's DanmEps have no UID of a Pod. The API server gives a mirror Pod another UID each time that
// kubelet makes it again, while the containers of the static Pod keep running.
func findPods(ctx context.Context, c client.Reader, all []Attachment) error {
	if len(all) == 0 {
		return nil
	}
	attached := map[string][]*Attachment{}
	for i := range all {
		attached[all[i].Pod] = append(attached[all[i].Pod], &all[i])
	}
	newList := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		return list
	}
	err := EachPage(ctx, c, pageSize, newList, func(list *metav1.PartialObjectMetadataList) {
		for i := range list.Items {
			pod := &list.Items[i]
			_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
			for _, a := range attached[pod.Namespace+"/"+pod.Name] {
				a.PodExists = a.podUID == "" || a.podUID == pod.UID || isMirror
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	return nil
}

// maxReport bounds what a message has of a node's report.
const maxReport = 600

// WithoutDanmEp returns what a node reports of Pods that are attached and have no DanmEp, and an empty text if there are
// none. List does not know them.
func WithoutDanmEp(n *v1.NodeNetwork) string {
	c := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionDanmEpsMissing)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return Shorten(cmp.Or(c.Message, c.Reason))
}

// Shorten returns what a node has written as a part of a message: one line, and not so long that it pushes out the rest.
func Shorten(report string) string { return text.Truncate(text.OneLine(report), maxReport) }

// OfSilentNodes is the remedy for a report of Pods without a DanmEp whose daemon does not run any more.
const OfSilentNodes = "If a node does not report any more, delete its Node or its NodeNetwork"

// IsReportOf reports whether a NodeNetwork is that of a Node, and not of an earlier Node of its name.
func IsReportOf(n *v1.NodeNetwork, node types.UID) bool {
	return len(n.OwnerReferences) == 0 || slices.ContainsFunc(n.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == node })
}

// IsMissingKind reports whether a list of objects of danm.io has failed because their definition does not exist or is
// being deleted. A proxy, or an API server that starts, also answers that it does not have the kind: that must not look
// like a cluster without objects, so it is an error, as any other is.
func IsMissingKind(ctx context.Context, c client.Reader, plural string, listErr error) (bool, error) {
	if listErr == nil {
		return false, nil
	}
	failed := fmt.Errorf("list %s.%s: %w", plural, v1.GroupName, listErr)
	if !meta.IsNoMatchError(listErr) && !apierrors.IsNotFound(listErr) {
		return false, failed
	}
	definition := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
	definition.Name = plural + "." + v1.GroupName
	err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition)
	switch {
	case err == nil && definition.DeletionTimestamp != nil:
		return true, nil
	case err == nil:
		return false, failed
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return true, nil
	}
	return false, errors.Join(failed, fmt.Errorf("read CustomResourceDefinition %s: %w", definition.Name, err))
}

// networkName returns the network of a DanmEp in the form kind/namespace/name or kind/name.
func networkName(ep *v1.DanmEp) string {
	if ep.Spec.APIType == v1.KindClusterNetwork {
		return ep.Spec.APIType + "/" + ep.Spec.NetworkName
	}
	return ep.Spec.APIType + "/" + ep.Namespace + "/" + ep.Spec.NetworkName
}

// EachPage reads a list page by page, so that one page at a time is in memory.
func EachPage[L client.ObjectList](ctx context.Context, c client.Reader, size int64, newList func() L, handle func(L), options ...client.ListOption) error {
	for token := ""; ; {
		list := newList()
		if err := c.List(ctx, list, append([]client.ListOption{client.Limit(size), client.Continue(token)}, options...)...); err != nil {
			return err
		}
		handle(list)
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// maxNames is how many names a message has.
const maxNames = 5

// Describe names the first Pods and where they run, and how many more there are.
func Describe(all []Attachment) string {
	var pods []string
	seen := map[string]bool{}
	for i := range all {
		if !seen[all[i].Pod] {
			seen[all[i].Pod] = true
			pods = append(pods, fmt.Sprintf("%s on node %s (%s)", all[i].Pod, all[i].Node, all[i].Network))
		}
	}
	return Names(pods)
}

// Names joins the first names, and adds how many more there are.
func Names(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// CountPods returns how many Pods the attachments have.
func CountPods(all []Attachment) int {
	pods := map[string]bool{}
	for i := range all {
		pods[all[i].Pod] = true
	}
	return len(pods)
}
