// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// newUninstall is the verb `uninstall`.
func newUninstall(f *factory) *cobra.Command {
	u := &uninstallation{out: f.Out}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Uninstall what the operator has installed, and show the progress",
		Long: "Deletes the Installation, and shows what patchbay-operator removes step by step: pre-allocated addresses, host\n" +
			"links and CNI configuration on each node, then the programs. Networks and CustomResourceDefinitions stay,\n" +
			"so that a later installation finds them. Without --yes the command changes nothing: it prints the effects.\n" +
			"It fails while Pods are attached to networks. You can interrupt it: the operator continues, and the same\n" +
			"command shows the progress again. patchbay-operator must run until the end.",
		Example: "  kubectl patchbay uninstall\n" +
			"  kubectl patchbay uninstall --yes\n" +
			"  kubectl patchbay uninstall --yes --force --definitions",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if u.timeout <= 0 {
				return fmt.Errorf("flag --timeout: must be more than 0, such as 10m: got %v", u.timeout)
			}
			u.command = commandWithYes(cmd, args, "force", "definitions", "wait", "timeout")
			c, err := f.operatorClient()
			if err != nil {
				return err
			}
			return u.run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&u.yes, "yes", false, "uninstall; without this flag the command prints the effects")
	flags.BoolVar(&u.force, "force", false, "uninstall while Pods are attached, which keep their interfaces, and without nodes that do not answer")
	flags.BoolVar(&u.definitions, "definitions", false, "also delete the CustomResourceDefinitions, and with them all networks")
	flags.BoolVar(&u.wait, "wait", true, "show the progress until the end")
	flags.DurationVar(&u.timeout, "timeout", 10*time.Minute, "the time to wait")
	return cmd
}

// uninstallation is one call of `uninstall`.
type uninstallation struct {
	out     io.Writer
	command string

	yes, force, definitions, wait bool
	timeout                       time.Duration

	installation *v1alpha1.Installation
	// last is the step that was printed last, and reason is its reason.
	last, reason string
}

func (u *uninstallation) run(ctx context.Context, c client.Client) error {
	if err := u.read(ctx, c); err != nil {
		return err
	}
	users, err := readUsers(ctx, c, u.installation.UID)
	if err != nil {
		return err
	}
	u.force = u.force || u.installation.Annotations[v1alpha1.ForceUninstallAnnotation] == "true"
	u.definitions = u.definitions || u.installation.Annotations[v1alpha1.RemoveDefinitionsAnnotation] == "true"
	inDeletion := u.installation.DeletionTimestamp != nil
	if !inDeletion || !u.yes {
		if err := u.printEffects(users); err != nil {
			return err
		}
	}
	switch {
	case users.exist() && !u.force && !inDeletion:
		return fmt.Errorf("nothing was changed: %s. Delete them first. With --force they keep their interfaces%s", strings.Join(users.describe(), "; "), users.remedy())
	case !u.yes && inDeletion:
		_, err := fmt.Fprintf(u.out, "The Installation is being deleted already. To see the progress: %s\n", u.command)
		return err
	case !u.yes:
		_, err := fmt.Fprintf(u.out, "Nothing was changed. To uninstall: %s\n", u.command)
		return err
	}
	if err := u.order(ctx, c); err != nil {
		return err
	}
	if !u.wait {
		_, err := fmt.Fprintln(u.out, "The operator uninstalls Patchbay. To see the progress, run the command again without --wait=false")
		return err
	}
	return u.follow(ctx, c)
}

// read reads the Installation. Without one, the error says how Patchbay is uninstalled.
func (u *uninstallation) read(ctx context.Context, c client.Client) error {
	u.installation = &v1alpha1.Installation{}
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.InstallationName}, u.installation)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("read Installation %s: %w", v1alpha1.InstallationName, err)
	}
	list := &appsv1.DaemonSetList{}
	if err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: "patchbayd"}); err != nil {
		return fmt.Errorf("list DaemonSets: %w", err)
	}
	if len(list.Items) == 0 {
		return errors.New("no Installation and no DaemonSet patchbayd exists: Patchbay is not installed")
	}
	return fmt.Errorf("no Installation exists, and DaemonSet %s/patchbayd does: Patchbay was installed without its operator. Follow docs/install.md, section Uninstall",
		list.Items[0].Namespace)
}

// users are what an uninstallation concerns.
type users struct {
	// attached are the Pods with a DanmEp, and withoutDanmEp are the nodes that report Pods without one.
	attached      []attachments.Attachment
	withoutDanmEp []string
	// nodes is the number of nodes. onlyPatchbay are those without another CNI configuration that works.
	nodes        int
	onlyPatchbay []string
}

// readUsers reads Pods and nodes.
func readUsers(ctx context.Context, c client.Client, installation types.UID) (*users, error) {
	u := &users{}
	all, err := attachments.List(ctx, c)
	if err != nil {
		return nil, err
	}
	u.attached = slices.DeleteFunc(all, func(a attachments.Attachment) bool { return !a.PodExists })
	nodes, err := readNodes(ctx, c)
	if err != nil {
		return nil, err
	}
	const pageSize = 100
	err = attachments.EachPage(ctx, c, pageSize, func() *v1.NodeNetworkList { return &v1.NodeNetworkList{} }, func(list *v1.NodeNetworkList) {
		for i := range list.Items {
			node := &list.Items[i]
			u.nodes++
			if n := node.Status.NodeConfiguration; n == nil || n.File == "" || n.Error != "" {
				u.onlyPatchbay = append(u.onlyPatchbay, node.Name)
			}
			if report := attachments.WithoutDanmEp(node); report != "" && counts(node, nodes, installation) {
				u.withoutDanmEp = append(u.withoutDanmEp, node.Name+": "+report)
			}
		}
	})
	if _, err := attachments.IsMissingKind(ctx, c, "nodenetworks", err); err != nil {
		return nil, err
	}
	return u, nil
}

// readNodes returns the UIDs of the Nodes by name.
func readNodes(ctx context.Context, c client.Client) (map[string]types.UID, error) {
	nodes := map[string]types.UID{}
	newList := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		return list
	}
	const pageSize = 500
	err := attachments.EachPage(ctx, c, pageSize, newList, func(list *metav1.PartialObjectMetadataList) {
		for i := range list.Items {
			nodes[list.Items[i].Name] = list.Items[i].UID
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return nodes, nil
}

// counts reports whether the operator waits for what a node reports: its Node exists, and its daemon has not cleaned up.
func counts(report *v1.NodeNetwork, nodes map[string]types.UID, installation types.UID) bool {
	node, exists := nodes[report.Name]
	if !exists || !attachments.IsReportOf(report, node) {
		return false
	}
	c := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionCleanedUp)
	if c == nil {
		return true
	}
	_, isOurs := v1alpha1.CutCleanUpMessage(installation, c.Message)
	return !isOurs
}

// exist reports whether Pods are attached.
func (u *users) exist() bool { return len(u.attached)+len(u.withoutDanmEp) > 0 }

// describe names the Pods that are attached.
func (u *users) describe() []string {
	var all []string
	if len(u.attached) > 0 {
		all = append(all, fmt.Sprintf("%d Pods are attached to networks: %s", attachments.CountPods(u.attached), attachments.Describe(u.attached)))
	}
	if len(u.withoutDanmEp) > 0 {
		all = append(all, fmt.Sprintf("%d nodes have attached Pods without a DanmEp: %s", len(u.withoutDanmEp), attachments.Names(u.withoutDanmEp)))
	}
	return all
}

// remedy says what to do about nodes that do not report any more.
func (u *users) remedy() string {
	if len(u.withoutDanmEp) == 0 {
		return ""
	}
	return ". " + attachments.OfSilentNodes
}

// printEffects prints what the uninstallation does.
func (u *uninstallation) printEffects(of *users) error {
	out := bufio.NewWriter(u.out)
	for _, name := range []string{v1alpha1.ForceUninstallAnnotation, v1alpha1.RemoveDefinitionsAnnotation} {
		if u.installation.Annotations[name] == "true" {
			fmt.Fprintf(out, "The Installation has the annotation %s, which counts as the flag does\n", name)
		}
	}
	fmt.Fprintf(out, "%d nodes: CNI configuration, host links and pre-allocated addresses are removed\n", of.nodes)
	if len(of.onlyPatchbay) > 0 {
		fmt.Fprintf(out, "  without another CNI configuration that works: new Pods do not start on %s\n", attachments.Names(of.onlyPatchbay))
	}
	for _, pods := range of.describe() {
		fmt.Fprintln(out, pods)
	}
	fmt.Fprintln(out, "Programs, rights, policies and webhooks are removed")
	if u.definitions {
		fmt.Fprintln(out, "CustomResourceDefinitions are deleted, and with them ALL networks, TenantConfigs and DanmEps")
		if u.force && of.exist() {
			fmt.Fprintln(out, "  not before these Pods are deleted: networks that are made again would give their addresses to others. Until then, the uninstallation waits")
		}
	} else {
		fmt.Fprintln(out, "CustomResourceDefinitions and networks stay")
	}
	return out.Flush()
}

// order sets the annotations, and deletes the Installation that was read. If it is not deleted, the annotations are as
// before: they would count for a later deletion.
func (u *uninstallation) order(ctx context.Context, c client.Client) error {
	before := maps.Clone(u.installation.Annotations)
	var set []string
	for name, isSet := range map[string]bool{v1alpha1.ForceUninstallAnnotation: u.force, v1alpha1.RemoveDefinitionsAnnotation: u.definitions} {
		if isSet && before[name] != "true" {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	if err := u.annotate(ctx, c, set); err != nil {
		_, undone := u.undo(ctx, c, before, set)
		return errors.Join(err, undone)
	}
	if u.installation.DeletionTimestamp != nil {
		return nil
	}
	err := c.Delete(ctx, u.installation, client.Preconditions{UID: &u.installation.UID})
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	inDeletion, undone := u.undo(ctx, c, before, set)
	if inDeletion {
		return nil // the reply was lost
	}
	return errors.Join(fmt.Errorf("delete Installation %s: %w", u.installation.Name, err), undone)
}

// annotate sets annotations of the Installation that was read to "true".
func (u *uninstallation) annotate(ctx context.Context, c client.Client, names []string) error {
	if len(names) == 0 {
		return nil
	}
	annotations := map[string]string{}
	for _, name := range names {
		annotations[name] = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.installation.UID, "annotations": annotations}})
	if err == nil {
		err = c.Patch(ctx, u.installation, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("annotate Installation %s: %w", u.installation.Name, err)
	}
	return nil
}

// undoTimeout bounds how long the command continues after a Ctrl-C.
const undoTimeout = 5 * time.Second

// undo gives the annotations the values that they had before, also if their request has failed, because its reply may have
// been lost. It changes nothing if the Installation is being deleted, and reports that: the operator reads them then. It
// does not end with ctx.
func (u *uninstallation) undo(ctx context.Context, c client.Client, before map[string]string, names []string) (inDeletion bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		i := &v1alpha1.Installation{}
		err := c.Get(ctx, client.ObjectKeyFromObject(u.installation), i)
		if apierrors.IsNotFound(err) || err == nil && (i.UID != u.installation.UID || i.DeletionTimestamp != nil) {
			inDeletion = true
			return nil
		}
		if err != nil {
			return err
		}
		undone := i.DeepCopy()
		for _, name := range names {
			if value, ok := before[name]; !ok {
				delete(undone.Annotations, name)
			} else if i.Annotations[name] == "true" {
				undone.Annotations[name] = value
			}
		}
		if maps.Equal(undone.Annotations, i.Annotations) {
			return nil
		}
		// The deletion may still arrive: it changes the version.
		return c.Patch(ctx, undone, client.MergeFromWithOptions(i, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
	})
	if err != nil && len(names) > 0 {
		return false, fmt.Errorf("the Installation may still have the annotations of the flags, which count for a later deletion. Remove them: kubectl annotate installation %s %s-: %w",
			u.installation.Name, strings.Join(names, "- "), err)
	}
	return inDeletion, nil
}

// progressInterval is how often the progress is read.
const progressInterval = 500 * time.Millisecond

// errRefused means that the operator waits for the user.
var errRefused = errors.New("refused")

// follow prints each step until the Installation is gone.
func (u *uninstallation) follow(ctx context.Context, c client.Client) error {
	waiting, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(waiting, progressInterval, true, func(ctx context.Context) (bool, error) {
		i := &v1alpha1.Installation{}
		err := c.Get(ctx, client.ObjectKeyFromObject(u.installation), i)
		switch {
		case apierrors.IsNotFound(err), err == nil && i.UID != u.installation.UID:
			return true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return false, fmt.Errorf("read Installation %s: %w: the operator continues to uninstall", u.installation.Name, err)
		case err == nil:
			return false, u.print(i)
		}
		return false, nil // the API server may be away for a moment; the timeout bounds it
	})
	switch {
	case err == nil:
		return u.end(ctx, c)
	case errors.Is(err, errRefused):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted: the operator continues to uninstall; run the command again to see the progress")
	case wait.Interrupted(err) && u.last == "":
		return fmt.Errorf("the operator has reported no step within %s: it must run: kubectl -n patchbay-operator get deployment patchbay-operator", u.timeout)
	case wait.Interrupted(err):
		return fmt.Errorf("not uninstalled within %s; the operator continues. The last step is %s", u.timeout, u.last)
	}
	return err
}

// end prints how the uninstallation has ended. An Installation may also be gone because a user has removed its
// finalizer, or because it never had one: then the DaemonSet is still there.
func (u *uninstallation) end(ctx context.Context, c client.Client) error {
	switch u.reason {
	case v1alpha1.ReasonUninstalled:
	case v1alpha1.ReasonAnotherInstallation:
		return fmt.Errorf("not uninstalled: %s", u.last)
	default:
		list := &appsv1.DaemonSetList{}
		if err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: "patchbayd"}); err != nil {
			return fmt.Errorf("the Installation is gone, and the operator has not reported the end: list DaemonSets: %w", err)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("not uninstalled: the Installation is gone, and DaemonSet %s/patchbayd is still there. Create the Installation again, wait until it is Ready, and uninstall again; or follow docs/install.md, section Uninstall",
				list.Items[0].Namespace)
		}
	}
	_, err := fmt.Fprint(u.out, "Patchbay is uninstalled. What is left: the labels nics.danm.io/* of Nodes, and patchbay-operator.\n"+
		"To remove the operator, run in the folder of its release: "+removeOperator+"\n")
	return err
}

// removeOperator is the command that docs/operator.md has, too.
const removeOperator = "kubectl delete --ignore-not-found -f manifests/patchbay-operator.yaml"

// print prints the step if it is another one. Its error wraps errRefused if the operator waits for the Pods' deletion.
func (u *uninstallation) print(i *v1alpha1.Installation) error {
	c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUninstalled)
	if c == nil {
		return nil
	}
	message := text.OneLine(c.Message) // it has texts that nodes have written
	if step := c.Reason + ": " + message; step != u.last {
		u.last, u.reason = step, c.Reason
		if _, err := fmt.Fprintln(u.out, step); err != nil {
			return err
		}
	}
	// With --force, the annotation may not have been read yet.
	if c.Reason == v1alpha1.ReasonPodsAttached && !u.force {
		return fmt.Errorf("%w: %s. The uninstallation continues when they are gone", errRefused, message)
	}
	return nil
}
