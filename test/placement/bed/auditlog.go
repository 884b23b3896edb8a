// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const auditFile = "audit.log"

// Write is one successful write as an API server's audit log has it.
type Write struct {
	// Time of the request: who acts on a write asks later than that, though not always
	// later than the answer.
	Time time.Time
	// User who wrote; Agent is the program's name and version.
	User, Agent string
	// Verb is create, update, patch, delete or deletecollection.
	Verb string
	// URI of the request, with its query.
	URI string
	// Group, Version, Resource, Subresource, Namespace and Name say what was written.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Created tells that the object was not there before.
	Created bool
	// Request is the body of the request.
	Request json.RawMessage
	// Object is the answer, its numbers integers as in any unstructured object: the object afterwards, or that was deleted; empty for a Status.
	Object unstructured.Unstructured
	// Precondition is the UID that a delete asked for.
	Precondition types.UID
}

// Key names what was written, without its version.
func (w Write) Key() string {
	return w.Group + "/" + w.Resource + " " + w.Namespace + "/" + w.Name
}

// String is for messages.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s by %s", w.Time.Format("15:04:05.000"), w.Verb, w.Key(), w.Subresource, w.User)
}

// auditEvent is what we read of audit.k8s.io/v1, Event.
type auditEvent struct {
	Verb, RequestURI, UserAgent, Stage string
	User                               struct{ Username string }
	ImpersonatedUser                   *struct{ Username string }
	ObjectRef                          struct {
		APIGroup, APIVersion, Resource, Subresource, Namespace, Name string
	}
	ResponseStatus                struct{ Code int }
	RequestObject, ResponseObject json.RawMessage
	RequestReceivedTimestamp      time.Time
}

// AuditReader reads an audit log, from where the last read ended.
type AuditReader struct {
	file   string
	offset int64
}

// Writes returns what was written since the last call, in the order of the answers. With
// texts it reads only lines that have one of them: a log is long, and JSON slow.
func (l *AuditReader) Writes(texts ...string) ([]Write, error) {
	f, err := os.Open(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var all []Write
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil // half a line is read the next time
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		l.offset += int64(len(line))
		if len(texts) > 0 && !slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
			continue
		}
		w, ok, err := parseAuditLine(line)
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		if ok {
			all = append(all, w)
		}
	}
}

// parseAuditLine reads one line; false when nothing was written.
func parseAuditLine(line []byte) (Write, bool, error) {
	var e auditEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return Write{}, false, fmt.Errorf("decode event: %w", err)
	}
	code := e.ResponseStatus.Code
	if e.Stage != "ResponseComplete" || code < http.StatusOK || code >= http.StatusMultipleChoices {
		return Write{}, false, nil
	}
	w := Write{
		Time: e.RequestReceivedTimestamp, User: e.User.Username, Agent: e.UserAgent, Verb: e.Verb, URI: e.RequestURI,
		Group: e.ObjectRef.APIGroup, Version: e.ObjectRef.APIVersion, Resource: e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Created: code == http.StatusCreated && e.ObjectRef.Subresource == "", Request: e.RequestObject,
	}
	if e.ImpersonatedUser != nil {
		w.User = e.ImpersonatedUser.Username
	}
	if len(e.ResponseObject) > 0 {
		_ = utiljson.Unmarshal(e.ResponseObject, &w.Object.Object) // a Status without kind is no object
	}
	if w.Name == "" {
		w.Name = w.Object.GetName()
	}
	if w.Verb == "delete" {
		var o struct {
			Preconditions struct{ UID types.UID }
		}
		if len(w.Request) > 0 {
			_ = json.Unmarshal(w.Request, &o)
		}
		w.Precondition = o.Preconditions.UID
	}
	return w, true, nil
}
