{{- /*
patchbay.workload renders the workload of a part, as the values change it. Arguments: "root" is the chart's own
scope, and "part" the name of the part in the values.
*/ -}}
{{- define "patchbay.workload" -}}
{{- $values := get .root.Values.parts .part | default dict -}}
{{- $workload := include (printf "patchbay.default.%s" .part) .root | fromYaml -}}
{{- $arguments := dict "root" .root "part" .part "values" $values "workload" $workload "container" (first $workload.spec.template.spec.containers) -}}
{{- include "patchbay.setImage" $arguments -}}
{{- include "patchbay.setFlags" $arguments -}}
{{- include "patchbay.setFolders" $arguments -}}
{{- include "patchbay.setRollout" $arguments -}}
{{- include "patchbay.setTemplate" $arguments -}}
{{- include "patchbay.checkTemplate" $arguments -}}
{{- toYaml $workload -}}
{{- end -}}

{{- define "patchbay.setImage" -}}
{{- $image := .values.image | default dict -}}
{{- $registry := $image.registry | default .root.Values.registry | default (include "patchbay.registry" .root | trim) -}}
{{- $repository := $image.repository | default (.container.image | base | splitList ":" | first) -}}
{{- $tag := $image.tag | default .root.Values.version | default .root.Chart.AppVersion -}}
{{- $digest := ternary (printf "@%s" $image.digest) "" (not (empty $image.digest)) -}}
{{- $_ := set .container "image" (printf "%s/%s:%s%s" $registry $repository $tag $digest) -}}
{{- if .root.Values.imagePullPolicy -}}{{- $_ := set .container "imagePullPolicy" .root.Values.imagePullPolicy -}}{{- end -}}
{{- end -}}

{{- define "patchbay.setFlags" -}}
{{- $features := .root.Values.features | default dict -}}
{{- $args := .container.args -}}
{{- if and (hasKey $features "metrics") (not $features.metrics) -}}
{{- $kept := list -}}
{{- range $args -}}{{- if not (hasPrefix "--metrics-address=" .) -}}{{- $kept = append $kept . -}}{{- end -}}{{- end -}}
{{- $args = $kept -}}
{{- $ports := list -}}
{{- range .container.ports -}}{{- if ne .name "metrics" -}}{{- $ports = append $ports . -}}{{- end -}}{{- end -}}
{{- $_ := set .container "ports" $ports -}}
{{- end -}}
{{- if and (eq .part "node") (hasKey $features "nodeConfiguration") (not $features.nodeConfiguration) -}}
{{- $args = append $args "--node-configuration=false" -}}
{{- end -}}
{{- if eq (.values.logLevel | default .root.Values.logLevel) "debug" -}}{{- $args = append $args "--debug" -}}{{- end -}}
{{- $_ := set .container "args" (concat $args (.values.args | default list)) -}}
{{- if eq .part "placementAgent" -}}
{{- if not .values.cluster -}}
{{- fail "parts.placementAgent.cluster: must be the name of this cluster at its hub if the agent is enabled" -}}
{{- end -}}
{{- range .container.env -}}{{- if eq .name "CLUSTER" -}}{{- $_ := set . "value" $.values.cluster -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.setFolders gives the node daemon the folders of the container runtime, at the same paths as on the node. */ -}}
{{- define "patchbay.setFolders" -}}
{{- if eq .part "node" -}}
{{- range $volume, $folder := dict "cni-bin" (dict "flag" "--cni-bin-dir" "path" .values.cniBinDir) "cni-conf" (dict "flag" "--cni-conf-dir" "path" .values.cniConfDir) -}}
{{- if $folder.path -}}
{{- $_ := set $.container "args" (append $.container.args (printf "%s=%s" $folder.flag $folder.path)) -}}
{{- range $.container.volumeMounts -}}{{- if eq .name $volume -}}{{- $_ := set . "mountPath" $folder.path -}}{{- end -}}{{- end -}}
{{- range $.workload.spec.template.spec.volumes -}}{{- if eq .name $volume -}}{{- $_ := set .hostPath "path" $folder.path -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "patchbay.setRollout" -}}
{{- $spec := .workload.spec -}}
{{- $field := ternary "updateStrategy" "strategy" (eq .workload.kind "DaemonSet") -}}
{{- $wanted := .values.updateStrategy | default dict -}}
{{- $strategy := get $spec $field | default dict -}}
{{- if $wanted.type -}}{{- $_ := set $strategy "type" $wanted.type -}}{{- end -}}
{{- $rolling := $strategy.rollingUpdate | default dict -}}
{{- range $name := list "maxUnavailable" "maxSurge" -}}
{{- if not (kindIs "invalid" (get $wanted $name)) -}}
{{- if not (eq (toString (get $wanted $name)) "") -}}{{- $_ := set $rolling $name (get $wanted $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $rolling -}}{{- $_ := set $strategy "rollingUpdate" $rolling -}}{{- end -}}
{{- if has $wanted.type (list "OnDelete" "Recreate") -}}{{- $_ := unset $strategy "rollingUpdate" -}}{{- end -}}
{{- if $strategy -}}{{- $_ := set $spec $field $strategy -}}{{- end -}}
{{- range $name := list "replicas" "progressDeadlineSeconds" -}}
{{- if get $.values $name -}}{{- $_ := set $spec $name (get $.values $name) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.setTemplate merges into the template of the Pods what all parts have, then the part's own values, then its template. */ -}}
{{- define "patchbay.setTemplate" -}}
{{- $spec := dict "containers" (list (dict "name" .container.name "resources" (.values.resources | default dict))) -}}
{{- if .root.Values.imagePullSecrets -}}{{- $_ := set $spec "imagePullSecrets" .root.Values.imagePullSecrets -}}{{- end -}}
{{- if .values.tolerations -}}{{- $_ := set $spec "tolerations" .values.tolerations -}}{{- end -}}
{{- $keys := include "patchbay.mergeKeys" .root | fromYaml -}}
{{- range $patch := list (dict "spec" $spec) (.values.template | default dict) -}}
{{- /* As JSON, all numbers have the same type. */ -}}
{{- $field := printf "parts.%s.template" $.part -}}
{{- include "patchbay.merge" (dict "object" $.workload.spec.template "patch" ($patch | toJson | fromJson) "path" "" "field" $field "keys" $keys) -}}
{{- end -}}
{{- end -}}
