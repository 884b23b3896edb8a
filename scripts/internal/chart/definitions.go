// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"path/filepath"
	"slices"
)

// keepAnnotation makes Helm leave an object in the cluster when its release is uninstalled.
const keepAnnotation = "helm.sh/resource-policy"

// definitionFiles returns the generated files of the chart of the definitions. Those of the networks are always in
// it, and that of the agent's records only if the values ask for it: `kubectl patchbay cluster join` installs it, too,
// and Helm does not take over what it has not made.
func (Release) definitionFiles(deployments string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range []struct{ kustomization, condition string }{{"crds", ""}, {"placement", ".Values.placementAgent"}} {
		objects, err := render(filepath.Join(deployments, d.kustomization))
		if err != nil {
			return nil, err
		}
		for _, o := range slices.DeleteFunc(objects, func(o object) bool { return o.kind() != "CustomResourceDefinition" }) {
			annotations, _ := o.metadata()["annotations"].(map[string]any)
			if annotations == nil {
				return nil, fmt.Errorf("%s: must have annotations", o.name())
			}
			annotations[keepAnnotation] = "keep"
			text, err := template(o)
			if err != nil {
				return nil, err
			}
			if d.condition != "" {
				text = when(d.condition, text)
			}
			files["templates/"+o.name()+".yaml"] = []byte(header + text)
		}
	}
	return files, nil
}
