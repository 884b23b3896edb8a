{{- /*
patchbay.workload renders the workload of a part, as the values change it. Arguments: "root" is the chart's own
scope, and "part" the name of the part in the values. The order is that of the operator: first what the values of
the part say, then its template, so that the template can say otherwise, and in the end the switches.
*/ -}}
{{- define "patchbay.workload" -}}
{{- $values := get (.root.Values.parts | default dict) .part | default dict -}}
{{- $workload := include (printf "patchbay.default.%s" .part) .root | fromYaml -}}
{{- $container := first $workload.spec.template.spec.containers -}}
{{- $arguments := dict "root" .root "part" .part "values" $values "workload" $workload "program" $container.name "container" $container -}}
{{- include "patchbay.setImage" $arguments -}}
{{- include "patchbay.setFolders" $arguments -}}
{{- include "patchbay.setCluster" $arguments -}}
{{- $_ := set $arguments "defaults" (deepCopy $workload.spec.template) -}}
{{- include "patchbay.setTemplate" $arguments -}}
{{- include "patchbay.checkTemplate" $arguments -}}
{{- include "patchbay.setFlags" $arguments -}}
{{- include "patchbay.setRollout" $arguments -}}
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

{{- define "patchbay.setCluster" -}}
{{- if eq .part "placementAgent" -}}
{{- if not .values.cluster -}}
{{- fail "parts.placementAgent.cluster: must be the name of this cluster at its hub, because the agent is enabled" -}}
{{- end -}}
{{- range .container.env -}}{{- if eq .name "CLUSTER" -}}{{- $_ := set . "value" $.values.cluster -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.setTemplate merges into the template of the Pods what all parts have, then the part's own values, then its template. */ -}}
{{- define "patchbay.setTemplate" -}}
{{- $spec := dict "containers" (list (dict "name" .program "resources" (.values.resources | default dict))) -}}
{{- if .root.Values.imagePullSecrets -}}{{- $_ := set $spec "imagePullSecrets" .root.Values.imagePullSecrets -}}{{- end -}}
{{- if .values.tolerations -}}{{- $_ := set $spec "tolerations" .values.tolerations -}}{{- end -}}
{{- $keys := include "patchbay.mergeKeys" .root | fromYaml -}}
{{- range $patch := list (dict "spec" $spec) (.values.template | default dict) -}}
{{- /* As JSON, all numbers have the same type. */ -}}
{{- $field := printf "parts.%s.template" $.part -}}
{{- include "patchbay.merge" (dict "object" $.workload.spec.template "patch" ($patch | toJson | fromJson) "path" "" "field" $field "keys" $keys) -}}
{{- end -}}
{{- $_ := unset . "container" -}}
{{- range (.workload.spec.template.spec).containers -}}{{- if eq .name $.program -}}{{- $_ := set $ "container" . -}}{{- end -}}{{- end -}}
{{- if and .container .values.args -}}{{- $_ := set .container "args" (concat (.container.args | default list) .values.args) -}}{{- end -}}
{{- end -}}

{{- define "patchbay.setFlags" -}}
{{- $features := .root.Values.features | default dict -}}
{{- $args := .container.args | default list -}}
{{- $more := list -}}
{{- if eq (.values.logLevel | default .root.Values.logLevel) "debug" -}}{{- $more = append $more "--debug" -}}{{- end -}}
{{- if eq .part "node" -}}
{{- $isOff := and (hasKey $features "nodeConfiguration") (not $features.nodeConfiguration) -}}
{{- with .root.Values.defaultDelegate -}}
{{- if $isOff -}}
{{- fail "defaultDelegate: must be empty if features.nodeConfiguration is false: Pods without an annotation do not start then" -}}
{{- end -}}
{{- $more = append $more (printf "--default-delegate=%s" .) -}}
{{- end -}}
{{- if $isOff -}}{{- $more = append $more "--node-configuration=false" -}}{{- end -}}
{{- end -}}
{{- range $more -}}{{- if not (has . $args) -}}{{- $args = append $args . -}}{{- end -}}{{- end -}}
{{- if and (hasKey $features "metrics") (not $features.metrics) (ne .part "placementAgent") -}}
{{- $kept := list -}}
{{- range $args -}}{{- if not (hasPrefix "--metrics-address=" .) -}}{{- $kept = append $kept . -}}{{- end -}}{{- end -}}
{{- $args = $kept -}}
{{- $ports := list -}}
{{- range .container.ports -}}{{- if ne .name "metrics" -}}{{- $ports = append $ports . -}}{{- end -}}{{- end -}}
{{- $_ := set .container "ports" $ports -}}
{{- end -}}
{{- if $args -}}{{- $_ := set .container "args" $args -}}{{- end -}}
{{- end -}}

{{- define "patchbay.setRollout" -}}
{{- $spec := .workload.spec -}}
{{- range $name := list "replicas" "progressDeadlineSeconds" -}}
{{- if get $.values $name -}}{{- $_ := set $spec $name (get $.values $name) -}}{{- end -}}
{{- end -}}
{{- $wanted := .values.updateStrategy | default dict -}}
{{- $path := printf "parts.%s.updateStrategy" .part -}}
{{- if eq .workload.kind "DaemonSet" -}}
{{- if eq ($wanted.type | default "RollingUpdate") "OnDelete" -}}{{- $_ := set $spec "updateStrategy" (dict "type" "OnDelete") -}}
{{- else if hasKey $wanted "maxUnavailable" -}}{{- $_ := set $spec.updateStrategy.rollingUpdate "maxUnavailable" $wanted.maxUnavailable -}}
{{- end -}}
{{- else if eq ($wanted.type | default "RollingUpdate") "Recreate" -}}
{{- if or (hasKey $wanted "maxSurge") (hasKey $wanted "maxUnavailable") -}}
{{- fail (printf "%s: must have no maxSurge and no maxUnavailable with the type Recreate" $path) -}}
{{- end -}}
{{- $_ := set $spec "strategy" (dict "type" "Recreate") -}}
{{- else -}}
{{- $was := dig "strategy" "rollingUpdate" (dict "maxSurge" "25%" "maxUnavailable" "25%") $spec -}}
{{- $surge := ternary $wanted.maxSurge $was.maxSurge (hasKey $wanted "maxSurge") -}}
{{- $unavailable := ternary $wanted.maxUnavailable $was.maxUnavailable (hasKey $wanted "maxUnavailable") -}}
{{- if and (include "patchbay.hostPorts" $spec.template | fromYaml) (not (has (toString $surge) (list "0" "0%"))) -}}
{{- fail (printf "%s.maxSurge: must be 0, because the Pods use ports of the node: a Pod in addition has no room on a node that runs one: got %v" $path $surge) -}}
{{- end -}}
{{- if and (has (toString $surge) (list "0" "0%")) (has (toString $unavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.maxUnavailable: must not be 0 while maxSurge is 0: no Pod could be replaced" $path) -}}
{{- end -}}
{{- if $wanted -}}
{{- $_ := set $spec "strategy" (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" $surge "maxUnavailable" $unavailable)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.serviceAccount is the account of a part's Pods, which its template may change. */ -}}
{{- define "patchbay.serviceAccount" -}}
{{- $values := get (.root.Values.parts | default dict) .part | default dict -}}
{{- $workload := include (printf "patchbay.default.%s" .part) .root | fromYaml -}}
{{- dig "spec" "serviceAccountName" $workload.spec.template.spec.serviceAccountName ($values.template | default dict) | quote -}}
{{- end -}}
