// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// auditPolicy logs each request of the programs when it arrives, so that a watch counts when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
  - level: Metadata
    users: [%s]
  - level: None
`

// request is a line of the audit log.
type request struct {
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        struct{ Resource, Subresource string }
	Received         time.Time `json:"requestReceivedTimestamp"`
}

// what names the request without its object.
func (r request) what() string {
	resource := r.ObjectRef.Resource
	switch {
	case resource == "":
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return r.Verb + " " + path
	case r.ObjectRef.Subresource != "":
		resource += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + resource
}

// isLease tells the requests of the leader election, which never end.
func (r request) isLease() bool { return r.ObjectRef.Resource == "leases" }

// isWrite is also true of an Event.
func (r request) isWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// auditLog is the log of an API server. It is read from where the last read ended.
type auditLog struct {
	file   string
	offset int64
}

// read returns the requests since the last call.
func (l *auditLog) read() ([]request, error) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	text, err := io.ReadAll(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // half a line is read the next time
	l.offset += int64(len(text))
	var all []request
	for line := range bytes.Lines(text) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("decode audit log: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// count is how many requests of each kind a program has made.
type count map[string]int

// countRequests counts the requests of a user from one time on, until before another.
func countRequests(all []request, user string, from, before time.Time) count {
	c := count{}
	for _, r := range all {
		if r.User.Username == user && !r.Received.Before(from) && r.Received.Before(before) {
			c[r.what()]++
		}
	}
	return c
}

// sum returns the number of requests, and that of requests about Leases.
func (c count) sum() (requests, leases int) {
	for what, n := range c {
		requests += n
		if strings.HasSuffix(what, " leases") {
			leases += n
		}
	}
	return requests, leases
}

// String lists the requests, such as "30 update leases, 2 watch pods".
func (c count) String() string {
	if len(c) == 0 {
		return "none"
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%d %s", c[what], what))
	}
	return strings.Join(all, ", ")
}
