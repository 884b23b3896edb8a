// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Subjects of Events on a Service, besides its networks by their names.
const (
	subjectService  = ""
	subjectWrite    = "write"
	subjectWithheld = "withheld"
)

// eventDeduplicator remembers what was last said about a Service on each subject, so that an Event
// comes when something changes and not with each look. It is lost with the process,
// and said once more.
type eventDeduplicator struct {
	mu   sync.Mutex
	last map[client.ObjectKey]map[string]string
}

// record notes a message, "" for none, and reports whether it should be said.
func (t *eventDeduplicator) record(key client.ObjectKey, subject, message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[key][subject] == message {
		return false
	}
	if message == "" {
		delete(t.last[key], subject)
		return false
	}
	if t.last == nil {
		t.last = map[client.ObjectKey]map[string]string{}
	}
	if t.last[key] == nil {
		t.last[key] = map[string]string{}
	}
	t.last[key][subject] = message
	return true
}

// retainSubjects forgets all subjects but these.
func (t *eventDeduplicator) retainSubjects(key client.ObjectKey, subjects ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.last[key], func(s, _ string) bool { return !slices.Contains(subjects, s) })
}

func (t *eventDeduplicator) forget(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, key)
}
