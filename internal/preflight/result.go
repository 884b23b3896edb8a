// SPDX-License-Identifier: Apache-2.0

package preflight

// Level is how a check ended.
type Level string

// The levels. Patchbay, or a feature that the user named, does not work after a Failure. After a Warning, something
// is missing that a cluster may do without, or could not be found out.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Failure Level = "failure"
)

// Result is the outcome of one check.
type Result struct {
	// Node is the name of the Node; empty for a check of the cluster.
	Node string `json:"node,omitempty"`
	// Check is what was checked, such as kernel or module vxlan.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Message is what was found.
	Message string `json:"message"`
	// Remedy is what to do, unless the level is OK.
	Remedy string `json:"remedy,omitempty"`
}

// results collects the results of one node, or of the cluster.
type results struct {
	node string
	all  []Result
}

func (r *results) ok(check, message string) {
	r.add(Result{Check: check, Level: OK, Message: message})
}

func (r *results) warn(check, message, remedy string) {
	r.add(Result{Check: check, Level: Warning, Message: message, Remedy: remedy})
}

func (r *results) fail(check, message, remedy string) {
	r.add(Result{Check: check, Level: Failure, Message: message, Remedy: remedy})
}

func (r *results) add(result Result) {
	result.Node = r.node
	r.all = append(r.all, result)
}
