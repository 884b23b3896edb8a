// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// halt remembers the Works that say that this hub is not the one, or not the state of
// it, that the agent has worked for. While there is one the agent writes no object.
type halt struct {
	mu      sync.Mutex
	reasons map[string]string // by Work
}

// set notes what is wrong with a Work; "" says that nothing is. It tells whether the
// agent may write again, or may no longer.
func (h *halt) set(work, reason string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.reasons) > 0
	if reason == "" {
		delete(h.reasons, work)
	} else {
		if h.reasons == nil {
			h.reasons = map[string]string{}
		}
		h.reasons[work] = reason
	}
	return before != (len(h.reasons) > 0)
}

// why says what is wrong with the first Work by name; "" when nothing is.
func (h *halt) why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.reasons) == 0 {
		return ""
	}
	return h.reasons[slices.Sorted(maps.Keys(h.reasons))[0]]
}

// mismatch says in which way a Work contradicts the records: its own, and for one
// without a record some other. It is "" when all is well.
func mismatch(work *v1alpha1.Work, rec, other *v1alpha1.AppliedWork) string {
	if rec == nil {
		if other != nil && other.Spec.Work.HubUID != work.Spec.HubUID {
			return fmt.Sprintf("Work %s is of hub %s, but the AppliedWorks here are of hub %s: if the hub was made anew on purpose, "+
				"delete the AppliedWorks (objects stay)", work.Name, work.Spec.HubUID, other.Spec.Work.HubUID)
		}
		return ""
	}
	known := rec.Spec.Work
	switch {
	case known.HubUID != work.Spec.HubUID:
		return fmt.Sprintf("Work %s is of hub %s, its AppliedWork of hub %s", work.Name, work.Spec.HubUID, known.HubUID)
	case work.Spec.Revision < known.Revision:
		return fmt.Sprintf("Work %s has revision %d, its AppliedWork has seen %d: the hub went back in time",
			work.Name, work.Spec.Revision, known.Revision)
	case work.Spec.Revision == known.Revision && !same(work.Spec, known):
		return fmt.Sprintf("Work %s has revision %d with another content than its AppliedWork: the hub went back in time",
			work.Name, work.Spec.Revision)
	}
	return ""
}

// same compares what two values say, however their manifests are written.
func same(a, b any) bool { return reflect.DeepEqual(plain(a), plain(b)) }

// plain is a value as JSON has it.
func plain(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return err // of what is no JSON, and so from no API server
	}
	var p any
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	return p
}
