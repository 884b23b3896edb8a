// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/test/source"
)

// installationClient has one Installation. Its errors are those of the requests.
type installationClient struct {
	client.Client

	annotations map[string]string
	inDeletion  bool
	get         error
	gets        int
	// patched is the error of the first Patch, whose change is stored if its reply is lost. delete handles a deletion.
	patched     error
	isReplyLost bool
	delete      func(*installationClient) error
}

// Get implements client.Client.
func (c *installationClient) Get(ctx context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.gets++
	into.SetResourceVersion("1")
	into.SetAnnotations(maps.Clone(c.annotations))
	if c.inDeletion {
		now := metav1.Now()
		into.SetDeletionTimestamp(&now)
	}
	return cmp.Or(ctx.Err(), c.get)
}

// Patch implements client.Client.
func (c *installationClient) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	failed := cmp.Or(ctx.Err(), c.patched)
	c.patched = nil
	if failed != nil && !c.isReplyLost {
		return failed
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	patch := struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	for name, value := range patch.Metadata.Annotations {
		if value == nil {
			delete(c.annotations, name)
		} else {
			c.annotations[name] = *value
		}
	}
	return failed
}

// Delete implements client.Client.
func (c *installationClient) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return c.delete(c)
}

// If the Installation is not deleted, its annotations are as before: a later deletion, by any user, would be forced. If it
// is, they stay: the operator would wait for Pods.
func TestOrderUndoesAnnotations(t *testing.T) {
	t.Parallel()
	installations := schema.GroupResource{Resource: "installations"}
	forbidden := apierrors.NewForbidden(installations, "patchbay", errors.New("no right"))
	fails := func(err error) func(*installationClient) error {
		return func(*installationClient) error { return err }
	}
	none, both := map[string]string{"a": "b"}, map[string]string{"a": "b", v1alpha1.ForceUninstallAnnotation: "true", v1alpha1.RemoveDefinitionsAnnotation: "true"}
	earlier := map[string]string{v1alpha1.ForceUninstallAnnotation: "false", v1alpha1.RemoveDefinitionsAnnotation: "true"}
	for name, tc := range map[string]struct {
		reason        string
		before, after map[string]string
		c             installationClient
		isInterrupted bool // before the deletion
		err           string
	}{
		"Deleted":     {"The operator reads them.", none, both, installationClient{delete: fails(nil)}, false, ""},
		"Forbidden":   {"A later deletion was not meant to be forced.", none, none, installationClient{delete: fails(forbidden)}, false, "no right"},
		"Earlier":     {"A value that a user has set stays.", earlier, earlier, installationClient{delete: fails(forbidden)}, false, "no right"},
		"Gone":        {"Another user has deleted it.", none, both, installationClient{delete: fails(apierrors.NewNotFound(installations, "patchbay"))}, false, ""},
		"Interrupted": {"The user has pressed Ctrl-C before the deletion.", none, none, installationClient{delete: fails(context.Canceled)}, true, "context canceled"},
		"LostReply":   {"The deletion has begun, and cannot be taken back.", none, both, installationClient{delete: func(c *installationClient) error { c.inDeletion = true; return io.ErrUnexpectedEOF }}, false, ""},
		"LostPatch":   {"The annotations are set, and nothing is deleted.", none, none, installationClient{patched: io.ErrUnexpectedEOF, isReplyLost: true}, false, "annotate Installation patchbay: unexpected EOF"},
		"NoPatch":     {"Nothing was set.", none, none, installationClient{patched: forbidden}, false, "annotate Installation patchbay"},
		"OtherChange": {"The operator writes the Installation meanwhile.", none, none, installationClient{delete: func(c *installationClient) error {
			c.patched = apierrors.NewConflict(installations, "patchbay", errors.New("changed"))
			return forbidden
		}}, false, "no right"},
		"AwayFromThere": {"The user must remove them.", none, both, installationClient{delete: func(c *installationClient) error { c.get = io.ErrUnexpectedEOF; return io.ErrUnexpectedEOF }}, false, "kubectl annotate installation patchbay operator.patchbay.io/force-uninstall- operator.patchbay.io/remove-definitions-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &tc.c
			c.annotations = maps.Clone(tc.before)
			if handle := c.delete; tc.isInterrupted {
				c.delete = func(c *installationClient) error { cancel(); return handle(c) }
			}
			u := &uninstallation{out: io.Discard, force: true, definitions: true}
			u.installation = &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstallationName, Annotations: maps.Clone(tc.before)}}
			err := u.order(ctx, c)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s Got error %v, want %q in it", tc.reason, err, tc.err)
			}
			if !maps.Equal(c.annotations, tc.after) {
				t.Errorf("%s Got annotations %v, want %v", tc.reason, c.annotations, tc.after)
			}
		})
	}
}

// Without the right to read, the command does not wait, and does not blame the operator.
func TestFollowStopsWithoutRights(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason    string
		err       error
		isAtOnce  bool
		wantError string
	}{
		"Forbidden":    {"The right does not come back.", apierrors.NewForbidden(schema.GroupResource{Resource: "installations"}, "patchbay", errors.New("no right")), true, "the operator continues to uninstall"},
		"Unauthorized": {"The token has ended.", apierrors.NewUnauthorized("expired"), true, "the operator continues to uninstall"},
		"Away":         {"The API server may come back.", errors.New("connection refused"), false, "has reported no step"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &installationClient{get: tc.err}
			u := &uninstallation{out: io.Discard, timeout: 3 * progressInterval, installation: &v1alpha1.Installation{}}
			err := u.follow(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tc.wantError) || (c.gets == 1) != tc.isAtOnce {
				t.Errorf("%s Got %v after %d reads, want %q", tc.reason, err, c.gets, tc.wantError)
			}
		})
	}
}

// The command refuses only where the operator would wait.
func TestCounts(t *testing.T) {
	t.Parallel()
	cleanedUp := func(of types.UID) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionCleanedUp, Status: metav1.ConditionTrue, Message: v1alpha1.CleanUpMessage(of, "done")}}
	}
	for name, tc := range map[string]struct {
		reason     string
		node       string
		owner      types.UID
		conditions []metav1.Condition
		want       bool
	}{
		"Runs":        {"Only the node knows of the Pods.", "n1", "1", nil, true},
		"NoOwner":     {"The daemon has not seen its Node yet.", "n1", "", nil, true},
		"NodeDeleted": {"The machine is off for good.", "n2", "2", nil, false},
		"EarlierNode": {"The machine has another Node now.", "n1", "0", nil, false},
		"CleanedUp":   {"The clean-up names what is left.", "n1", "1", cleanedUp("i"), false},
		"Another":     {"The clean-up was for an earlier Installation.", "n1", "1", cleanedUp("j"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: tc.node}, Status: v1.NodeNetworkStatus{Conditions: tc.conditions}}
			if tc.owner != "" {
				report.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: tc.node, UID: tc.owner}}
			}
			if got := counts(report, map[string]types.UID{"n1": "1"}, "i"); got != tc.want {
				t.Errorf("%s Got %t", tc.reason, got)
			}
		})
	}
}

// A node that is off takes its report back never: the command says what to do.
func TestRemedy(t *testing.T) {
	t.Parallel()
	if got := (&users{attached: []attachments.Attachment{{Pod: "shop/web", PodExists: true}}}).remedy(); got != "" {
		t.Errorf("A Pod with a DanmEp is known without its node: got %q", got)
	}
	if got := (&users{withoutDanmEp: []string{"n1: 1 Pods"}}).remedy(); !strings.Contains(got, "delete its Node or its NodeNetwork") {
		t.Errorf("got %q, want it to say what to do about a node that is off", got)
	}
}

// The command says what it does before it does it.
func TestPrintEffects(t *testing.T) {
	t.Parallel()
	web := []attachments.Attachment{{Pod: "shop/web", Node: "n1", Network: "ClusterNetwork/a", PodExists: true}}
	const wait = "not before these Pods are deleted"
	for name, tc := range map[string]struct {
		reason             string
		users              users
		force, definitions bool
		want, wantNot      string
	}{
		"Definitions":       {"They go at once.", users{}, false, true, "CustomResourceDefinitions are deleted", wait},
		"UnderPods":         {"The command would wait without a word.", users{attached: web}, true, true, "ALL networks, TenantConfigs and DanmEps\n  " + wait, "networks stay"},
		"UnderUnknownPods":  {"So do Pods without a DanmEp.", users{withoutDanmEp: []string{"n1: 1 Pods"}}, true, true, wait, "networks stay"},
		"KeepUnderPods":     {"Networks stay.", users{attached: web}, true, false, "1 Pods are attached to networks: shop/web on node n1 (ClusterNetwork/a)\n", wait},
		"WithoutDanmEp":     {"Only the node knows of the Pod.", users{withoutDanmEp: []string{"n1: 1 Pods are attached and have no DanmEp: shop/db"}}, false, false, "1 nodes have attached Pods without a DanmEp: n1: 1 Pods are attached and have no DanmEp: shop/db\n", wait},
		"NoOtherConfig":     {"New Pods do not start there.", users{nodes: 2, onlyPatchbay: []string{"n2"}}, false, false, "2 nodes: CNI configuration, host links and pre-allocated addresses are removed\n  without another CNI configuration that works: new Pods do not start on n2\n", wait},
		"AnnotationAsAFlag": {"A user has set it before.", users{}, true, false, "The Installation has the annotation " + v1alpha1.ForceUninstallAnnotation, wait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			u := &uninstallation{out: &out, force: tc.force, definitions: tc.definitions, installation: &v1alpha1.Installation{}}
			if name == "AnnotationAsAFlag" {
				u.installation.Annotations = map[string]string{v1alpha1.ForceUninstallAnnotation: "true"}
			}
			if err := u.printEffects(&tc.users); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.Contains(got, tc.want) || strings.Contains(got, tc.wantNot) {
				t.Errorf("%s Got\n%s\nwant %q in it, and not %q", tc.reason, got, tc.want, tc.wantNot)
			}
		})
	}
}

// The operator's messages have texts of nodes. An administrator reads them in a terminal.
func TestStepReachesATerminalAsOneLine(t *testing.T) {
	t.Parallel()
	i := &v1alpha1.Installation{Status: v1alpha1.InstallationStatus{Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionUninstalled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsAttached, Message: "shop/web\x1b[2J\nNothing",
	}}}}
	var out bytes.Buffer
	u := &uninstallation{out: &out}
	err := u.print(i)
	const message = "shop/web [2J Nothing"
	if want := "refused: " + message + ". The uninstallation continues when they are gone"; err == nil || err.Error() != want {
		t.Errorf("got error %q, want %q", err, want)
	}
	if want := "PodsAttached: " + message + "\n"; out.String() != want {
		t.Errorf("got output %q, want %q", out.String(), want)
	}
}

// Who installed a release has no work tree. The last advice is the command of the page, which is run in a lab.
func TestAdviceIsThatOfThePage(t *testing.T) {
	t.Parallel()
	path, err := source.Path("docs", "operator.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	u := &uninstallation{out: &out, reason: v1alpha1.ReasonUninstalled}
	if err := u.end(t.Context(), &installationClient{}); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(out.String(), "kubectl delete")
	if at < 0 {
		t.Fatalf("got output %q, want a command in it", out.String())
	}
	command := strings.TrimSpace(out.String()[at:])
	if want := "\n```\n" + command + "\n```\n"; !strings.Contains(string(page), want) {
		t.Errorf("got the command %q, which is no block of docs/operator.md", command)
	}
}
