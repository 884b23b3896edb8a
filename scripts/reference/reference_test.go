// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// source is a package with each form of declaration that the API packages have.
const source = "// Package v1 is an API.\n// +groupName=example.com\npackage v1\n" + `
// Names of annotations.
const (
	// AskAnnotation asks for <something>.
	AskAnnotation = "example.com/ask"
	// ReasonDone: the answer is there.
	ReasonDone = "Done"
)

// Words that another page explains.
const (
	WordOne = "One"
	WordTwo = "Two"
)

// Mode says how.
// +kubebuilder:validation:Enum=On;Off;""
type Mode string

// Modes.
const (
	// ModeOn is the default.
	ModeOn Mode = "On"
)

// Thing is a kind.
//
// It has two paragraphs.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=th;ths,categories=all
type Thing struct {
	metav1.TypeMeta   ` + "`json:\",inline\"`" + `
	metav1.ObjectMeta ` + "`json:\"metadata,omitempty\"`" + `

	// Prefix is a | b.
	// +kubebuilder:default=eth
	// +kubebuilder:validation:MaxLength=14
	// +kubebuilder:validation:XValidation:rule=` + "`self != 'x'`,message=`must not be x`" + `
	// +optional
	Prefix string ` + "`json:\"container_prefix,omitempty\"`" + `

	// Modes are all of them.
	Modes map[string][]*Mode ` + "`json:\"modes\"`" + `
}

// ThingList is a list.
// +kubebuilder:object:root=true
type ThingList struct{}

// Help is for programs.
// +kubebuilder:object:generate=false
type Help struct{}
`

const want = `
## Thing
Thing is a kind.

It has two paragraphs.

Scope: Cluster. Short names: ` + "`th`, `ths`. Category: `all`." + `

| field | type | meaning |
|---|---|---|
| ` + "`container_prefix` | string | `container_prefix` is a \\| b. Default: `eth`. At most 14 characters.<br>Rule: must not be x. |" + `
| ` + "`modes` | map of string to list of [Mode](#mode) | `modes` are all of them. **Required.** |" + `

## Types

### Mode
Mode says how.

Type: string. One of ` + "`On`, `Off`, or empty." + `

| value | meaning |
|---|---|
| ` + "`On` | `On` is the default. |" + `

## Names
Annotations, labels, finalizers, conditions and reasons.

Names of annotations.

| value | meaning |
|---|---|
| ` + "`example.com/ask` | `example.com/ask` asks for &lt;something>. |" + `
| ` + "`Done`" + ` | The answer is there. |

Words that another page explains.
`

func TestRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "types.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{folder}, &out); err != nil {
		t.Fatal(err)
	}
	_, got, found := strings.Cut(out.String(), "- [Thing](#thing)\n")
	if !found {
		t.Fatalf("the page has no list of kinds:\n%s", out.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page: -want +got\n%s", diff)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"NoFolder": {reason: "the page of no package would be empty"},
		"NoFiles":  {reason: "a folder that was moved must not empty the page", args: []string{t.TempDir()}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(tc.args, &bytes.Buffer{}); err == nil {
				t.Errorf("%s: got no error", tc.reason)
			}
		})
	}
}
