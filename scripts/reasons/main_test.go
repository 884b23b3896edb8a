// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Readers look a reason up by its name, and a bar in a text must not end its cell.
func TestRender(t *testing.T) {
	t.Parallel()
	page := string(render("api/example", catalogue{"# Reasons\n", []v1.ReasonInfo{
		{Reason: "Lost", On: "Ready", When: "It is lost.", Remedy: "Run a | b <file>.", Test: "p.TestLost"},
		{Reason: "Found", On: "Ready", When: "It is found.", Remedy: "Nothing.", Test: "p.TestFound"},
	}}))
	want := "| `Found` | Ready | It is found. | Nothing. | `p.TestFound` |\n" +
		"| `Lost` | Ready | It is lost. | Run a \\| b &lt;file>. | `p.TestLost` |\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("got\n%s\nwant it to end with\n%s", page, want)
	}
}

// Each API group has its own page. An argument that is no catalogue writes no empty page.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		args        []string
		want, wrong string
	}{
		"danm":      {"The reasons of networks, Pods and Services have a page.", []string{"api/danm/v1"}, "| `LinksUp` |", ""},
		"placement": {"The reasons of placement have a page.", []string{"api/placement/v1alpha1"}, "| `Unschedulable` |", ""},
		"unknown":   {"The folder has no catalogue.", []string{"api"}, "", "must be one of api/danm/v1, api/operator/v1alpha1, api/placement/v1alpha1"},
		"none":      {"The folder is missing.", nil, "", "usage: reasons FOLDER"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var page bytes.Buffer
			err := run(tc.args, &page)
			if tc.wrong == "" && err != nil || tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)) {
				t.Errorf("%s\ngot %v, want the error %q", tc.reason, err, tc.wrong)
			}
			if !strings.Contains(page.String(), tc.want) || tc.want == "" && page.Len() > 0 {
				t.Errorf("%s\ngot\n%s\nwant it to have %q", tc.reason, &page, tc.want)
			}
		})
	}
}
