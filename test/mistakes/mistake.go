// SPDX-License-Identifier: Apache-2.0

package mistakes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Users that make mistakes.
const (
	// Engineer runs workloads in a namespace, with Kubernetes' role edit.
	Engineer = "application engineer"
	// Tenant has networks in a namespace, with Kubernetes' role edit.
	Tenant = "tenant"
	// Netadmin has the ClusterRole patchbay-netadmin.
	Netadmin = "netadmin"
	// Admin may do anything.
	Admin = "cluster administrator"
)

// Subjects returns what mistakes are about, in the order of the page.
func Subjects() []string {
	return []string{"Pods", "Workloads", "Services", "Networks", "TenantNetworks", "TenantConfigs"}
}

// Mistake is a file of testdata.
type Mistake struct {
	// Name is the file's, without its extension.
	Name string `json:"-"`
	// Title says in a few words what is wrong.
	Title string `json:"title"`
	// Who makes it.
	Who string `json:"who"`
	// Subject is one of Subjects.
	Subject string `json:"subject"`
	// Given are the objects that exist.
	Given []map[string]any `json:"given,omitempty"`
	// Create is the object that the user creates.
	Create map[string]any `json:"create,omitempty"`
	// Command is what the user does instead, as arguments of kubectl.
	Command []string `json:"command,omitempty"`
	// Excerpt is what is wrong in the object or the command, as the page shows it.
	Excerpt string `json:"excerpt"`
	// Answer is what kubectl prints or, with Test, what Where has.
	Answer string `json:"answer"`
	// Where is the place of an answer that does not come from the API server.
	Where string `json:"where,omitempty"`
	// Test is the test, such as daemon/internal/attach.TestAddRejects, whose file has that answer.
	Test string `json:"test,omitempty"`
	// Remedy is what to do.
	Remedy string `json:"remedy"`
}

// Read returns the mistakes in a folder, in the order of the files' names. A field must be known, and
// those that each mistake needs must be set.
func Read(folder string) ([]Mistake, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list mistakes: %w", err)
	}
	all := make([]Mistake, len(files))
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read mistake: %w", err)
		}
		if all[i], err = Parse(data); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		all[i].Name = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return all, nil
}

// Parse parses the text of a mistake.
func Parse(data []byte) (Mistake, error) {
	var m Mistake
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return m, err
	}
	for _, f := range []struct{ field, value string }{
		{"title", m.Title}, {"who", m.Who}, {"subject", m.Subject}, {"excerpt", m.Excerpt}, {"answer", m.Answer}, {"remedy", m.Remedy},
	} {
		if f.value == "" {
			return m, fmt.Errorf("%s must not be empty", f.field)
		}
	}
	if !slices.Contains(Subjects(), m.Subject) {
		return m, fmt.Errorf("subject %q must be one of %q", m.Subject, Subjects())
	}
	if (m.Create != nil) == (m.Command != nil) && m.Test == "" {
		return m, fmt.Errorf("one of create, command and test must be set")
	}
	if (m.Test == "") != (m.Where == "") {
		return m, fmt.Errorf("test and where must be set together")
	}
	m.Answer = strings.TrimSpace(m.Answer)
	return m, nil
}
