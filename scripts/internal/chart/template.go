// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// systemNamespace is the namespace of the manifests. In the chart, it is that of the release.
const systemNamespace = "patchbay-system"

// namespaceMark stands for the namespace of the release until the object is text. YAML needs no quotes for it.
const namespaceMark = "patchbay-chart-release-namespace"

// template returns an object as text that Helm renders to the same object in another namespace.
func template(o object) (string, error) {
	value, err := markNamespace(map[string]any(o), o.kind()+" "+o.name())
	if err != nil {
		return "", err
	}
	marked, _ := value.(map[string]any)
	accounts := markAccounts(marked)
	if _, ok := marked["aggregationRule"]; ok {
		delete(marked, "rules") // Kubernetes' own controller writes them, and Helm must not own them
	}
	text, err := yaml.Marshal(marked)
	if err != nil {
		return "", fmt.Errorf("encode %s %s: %w", o.kind(), o.name(), err)
	}
	// The texts of the manifests are no templates. The quotes are for namespaces such as 1234.
	replaced := slices.Concat(accounts, []string{"{{", `{{ "{{" }}`, namespaceMark, "{{ .Release.Namespace | quote }}"})
	return strings.NewReplacer(replaced...).Replace(string(text)), nil
}

// markAccounts marks the accounts of programs that a binding names, and returns the marks, each before the expression
// that it stands for: the template of a part may have an account of its own.
func markAccounts(o map[string]any) []string {
	var marks []string
	subjects, _ := o["subjects"].([]any)
	for _, value := range subjects {
		subject, _ := value.(map[string]any)
		for _, p := range parts() {
			if subject["kind"] == "ServiceAccount" && subject["name"] == p.program {
				mark := "patchbay-chart-account-of-" + p.name
				subject["name"] = mark
				marks = append(marks, mark, fmt.Sprintf(`{{ include "patchbay.serviceAccount" (dict "root" $ "part" %q) }}`, p.name))
			}
		}
	}
	return marks
}

// markNamespace returns a copy of a value with the mark in place of each string that is the namespace. A string that
// has it inside would keep it, and is an error.
func markNamespace(value any, path string) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, below := range v {
			var err error
			if out[key], err = markNamespace(below, path+"."+key); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := slices.Clone(v)
		for i := range v {
			var err error
			if out[i], err = markNamespace(v[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		if v == systemNamespace {
			return namespaceMark, nil
		}
		if strings.Contains(v, systemNamespace) {
			return nil, fmt.Errorf("%s: must not name %s inside of a text: the chart is installed into any namespace", path, systemNamespace)
		}
	}
	return value, nil
}

// when returns a text that is rendered only if a value is true.
func when(value, text string) string {
	return "{{- if " + value + " }}\n" + text + "{{- end }}\n"
}
