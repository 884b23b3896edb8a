// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/objects"
)

// newRebuild is the verb that has a bitmap written anew.
func newRebuild(ctx context.Context, a *access) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rebuild KIND/NAME",
		Short: "Write the bitmap of a network anew from who has which address",
		Long: "Writes the bitmap of a network anew from the nodes' entries and the DanmEps, and says what\n" +
			"was wrong. Running Pods and claims under way are not disturbed.",
		Example: "  kubectl patchbay ipam rebuild clusternetwork/storage\n  kubectl patchbay ipam rebuild danmnet/lan -n team-a",
		Args:    oneArgument("kind and name of one network, such as clusternetwork/storage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := a.open()
			if err != nil {
				return err
			}
			ref, err := parseTarget(args[0], namespace)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return rebuild(ctx, c, ref, cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for patchbay-controller")
	return cmd
}

// parseTarget reads KIND/NAME.
func parseTarget(text, namespace string) (network.Ref, error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return network.Ref{}, fmt.Errorf("%q names no network: want KIND/NAME, such as clusternetwork/storage", text)
	}
	kind, err := kindOf(word)
	if err != nil {
		return network.Ref{}, err
	}
	ref := network.Ref{Kind: kind, Namespace: namespace, Name: name}
	if kind == v1.KindClusterNetwork {
		ref.Namespace = ""
	}
	return ref, nil
}

// kindOf returns the kind that a user means by its name, plural or short name, with
// or without the API's group.
func kindOf(word string) (string, error) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	switch word {
	case "clusternetwork", "clusternetworks", "cn", "cnet":
		return v1.KindClusterNetwork, nil
	case "tenantnetwork", "tenantnetworks", "tn", "tnet":
		return v1.KindTenantNetwork, nil
	case "danmnet", "danmnets", "dn", "dnet":
		return v1.KindDanmNet, nil
	}
	return "", fmt.Errorf("%q is no kind of network: want clusternetwork, tenantnetwork or danmnet", word)
}

// rebuild asks for a rebuild, waits for it, and prints what it changed.
func rebuild(ctx context.Context, c client.Client, ref network.Ref, out io.Writer) error {
	obj := objects.Metadata(ref.Kind)
	if err := c.Get(ctx, objects.Key(ref), obj); err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	before, err := events(ctx, c, obj)
	if err != nil {
		return err
	}
	value := time.Now().UTC().Format(time.RFC3339Nano) // another one than that of a request before
	if err := annotate(ctx, c, obj, v1.RebuildAnnotation, value); err != nil {
		return err
	}
	if err := poll(ctx, func() (bool, error) { return obeyed(ctx, c, ref, value) }); err != nil {
		return explain(ctx, c, obj, before, err)
	}
	text := "the bitmap was rebuilt; `kubectl describe` has the Event that says what changed"
	if e := await(ctx, c, obj, before, v1.ReasonRebuilt); e != "" {
		text = e
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", ref, text)
	return err
}

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

// eventPatience is how long to wait for an Event of what is done: it is written
// besides, and may be a little late or not come at all.
const eventPatience = 3 * time.Second

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

// obeyed reports whether the request with that value is done with.
func obeyed(ctx context.Context, c client.Client, ref network.Ref, value string) (bool, error) {
	obj := objects.Metadata(ref.Kind)
	if err := c.Get(ctx, objects.Key(ref), obj); err != nil {
		return false, fmt.Errorf("get %s: %w", ref, err)
	}
	return obj.Annotations[v1.RebuildAnnotation] != value, nil
}

// explain says why a rebuild is not done in time.
func explain(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, before seen, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventPatience)
	defer cancel()
	if text := await(ctx, c, obj, before, v1.ReasonRebuildFailed); text != "" {
		return fmt.Errorf("the rebuild failed and will be tried again: %s", text)
	}
	return errors.New("patchbay-controller has not answered in time: does it run, and is the network in recovery " +
		"(condition Recovering)? The request stays, as the annotation " + v1.RebuildAnnotation)
}

// annotate sets an annotation of an object that was just read.
func annotate(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, name, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.UID, "annotations": map[string]string{name: value},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := c.Patch(ctx, obj.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s %s: %w", obj.Kind, obj.Name, err)
	}
	return nil
}

// poll asks until it is done, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// pollEvery is the time between two looks at what is waited for.
const pollEvery = 200 * time.Millisecond
