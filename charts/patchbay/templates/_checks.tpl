{{- /*
The checks of merged templates. They are those of the operator, with its words: a test compares both. Each adds its
problems to the list "problems" of its argument.
*/ -}}
{{- define "patchbay.checkTemplate" -}}
{{- $path := printf "parts.%s.template" .part -}}
{{- $pod := .workload.spec.template -}}
{{- $spec := $pod.spec | default dict -}}
{{- $c := dict "root" .root "part" .part "path" $path "spec" $spec "main" (.container | default dict) "program" .program "problems" list -}}
{{- $_ := set $c "at" (printf "%s.spec.containers[%s]" $path .program) -}}
{{- $_ := set $c "default" (first .defaults.spec.containers) -}}
{{- range $key, $value := .workload.spec.selector.matchLabels -}}
{{- $got := dig "metadata" "labels" $key "" $pod -}}
{{- if ne $got $value -}}
{{- include "patchbay.reject" (list $c (printf "%s.metadata.labels[%s]" $path $key) (printf "must be %s, because the workload selects its Pods by it: got %q" $value $got)) -}}
{{- end -}}
{{- end -}}
{{- if not .container -}}
{{- include "patchbay.reject" (list $c (printf "%s.spec.containers" $path) (printf "must have the container %s, which is the program: change it under this name" .program)) -}}
{{- else -}}
{{- include "patchbay.checkPod" $c -}}
{{- include "patchbay.checkArguments" $c -}}
{{- include "patchbay.checkPorts" $c -}}
{{- if eq .part "node" -}}{{- include "patchbay.checkNode" $c -}}
{{- else if eq .part "controller" -}}
{{- if and (not .container.command) (eq (include "patchbay.flag" (list $c "webhook-address" "")) "") -}}
{{- include "patchbay.reject" (list $c (printf "%s.args" $c.at) "flag --webhook-address must not be empty, because the API server rejects networks without the webhooks") -}}
{{- end -}}
{{- else -}}{{- include "patchbay.checkAgent" (dict "c" $c "cluster" .values.cluster) -}}
{{- end -}}
{{- end -}}
{{- if $c.problems -}}{{- fail (join "\n" $c.problems) -}}{{- end -}}
{{- end -}}

{{- /* patchbay.reject adds a problem. Its argument is a list of the check, the field, and what the field must be. */ -}}
{{- define "patchbay.reject" -}}
{{- $c := index . 0 -}}
{{- $_ := set $c "problems" (append $c.problems (printf "%s: %s" (index . 1) (index . 2))) -}}
{{- end -}}

{{- define "patchbay.checkPod" -}}
{{- $spec := .spec -}}
{{- if not (has ($spec.restartPolicy | default "Always") (list "Always")) -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.restartPolicy" .path) (printf "must be Always: got %s" $spec.restartPolicy)) -}}
{{- end -}}
{{- if not .main.image -}}{{- include "patchbay.reject" (list . (printf "%s.image" .at) "must not be empty") -}}{{- end -}}
{{- if not $spec.serviceAccountName -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.serviceAccountName" .path) "must not be empty, because the program needs rights") -}}
{{- end -}}
{{- include "patchbay.checkAccount" . -}}
{{- if and $spec.serviceAccount (ne $spec.serviceAccount ($spec.serviceAccountName | default "")) -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.serviceAccount" .path) (printf "must be left out, because serviceAccountName has taken its place: got %s" $spec.serviceAccount)) -}}
{{- end -}}
{{- $token := "/var/run/secrets/kubernetes.io/serviceaccount" -}}
{{- if and (hasKey $spec "automountServiceAccountToken") (not $spec.automountServiceAccountToken) (not (include "patchbay.mount" (list . $token))) -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.automountServiceAccountToken" .path) (printf "must not be false without a volume at %s, because the program needs its token" $token)) -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.checkAccount requires that a program shares its account with no other one. The default accounts are reserved. */ -}}
{{- define "patchbay.checkAccount" -}}
{{- $c := . -}}
{{- $owners := dict "patchbayd" "patchbayd" "patchbay-controller" "patchbay-controller" "patchbay-agent" "patchbay-agent" -}}
{{- $isBefore := true -}}
{{- range list (dict "part" "node" "program" "patchbayd") (dict "part" "controller" "program" "patchbay-controller") -}}
{{- if eq .part $c.part -}}{{- $isBefore = false -}}{{- end -}}
{{- if $isBefore -}}
{{- $used := include "patchbay.serviceAccount" (dict "root" $c.root "part" .part) | trimAll "\"" -}}
{{- if not (hasKey $owners $used) -}}{{- $_ := set $owners $used .program -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $account := .spec.serviceAccountName | default "" -}}
{{- $owner := get $owners $account -}}
{{- if and $owner (ne $owner .program) -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.serviceAccountName" .path) (printf "must be for %s only: got %s, which is for %s. With the rights of both, a stolen node could act as the controller" .program $account $owner)) -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.mount is the index of the program's mount at a path, or empty. Its argument is a list of the check and the path. */ -}}
{{- define "patchbay.mount" -}}
{{- $path := index . 1 -}}
{{- $found := "" -}}
{{- range $i, $mount := (index . 0).main.volumeMounts -}}
{{- if and (eq $found "") (eq (clean ($mount.mountPath | default "")) (clean $path)) -}}{{- $found = toString $i -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{- /* patchbay.flag is the value of a flag of the program. Its argument is a list of the check, the flag and what it is by default. */ -}}
{{- define "patchbay.flag" -}}
{{- $value := index . 2 -}}
{{- $prefix := printf "--%s=" (index . 1) -}}
{{- range (index . 0).main.args -}}{{- if hasPrefix $prefix . -}}{{- $value = trimPrefix $prefix . -}}{{- end -}}{{- end -}}
{{- $value -}}
{{- end -}}

{{- /* patchbay.checkArguments requires what the default template has. A program behind another command may get anything. */ -}}
{{- define "patchbay.checkArguments" -}}
{{- $c := . -}}
{{- if not .main.command -}}
{{- range $i, $argument := .main.args -}}
{{- if not (hasPrefix "--" $argument) -}}
{{- include "patchbay.reject" (list $c (printf "%s.args[%d]" $c.at $i) (printf "must be a flag in the form --name=value: got %q" $argument)) -}}
{{- end -}}
{{- end -}}
{{- range $argument := .default.args -}}
{{- $name := splitList "=" $argument | first -}}
{{- $isThere := eq $name "--metrics-address" -}}
{{- range $c.main.args -}}{{- if or (and (eq . $name) (eq $name $argument)) (hasPrefix (printf "%s=" $name) .) -}}{{- $isThere = true -}}{{- end -}}{{- end -}}
{{- if not $isThere -}}
{{- include "patchbay.reject" (list $c (printf "%s.args" $c.at) (printf "must have the flag %s, as in the default %s: a list of arguments in a template takes the place of the default list" $name $argument)) -}}
{{- end -}}
{{- end -}}
{{- range $variable := .default.env -}}
{{- $field := dig "valueFrom" "fieldRef" "fieldPath" "" $variable -}}
{{- if $field -}}
{{- $isSet := false -}}
{{- range $c.main.env -}}
{{- if and (eq .name $variable.name) (not .value) (eq (dig "valueFrom" "fieldRef" "fieldPath" "" .) $field) -}}{{- $isSet = true -}}{{- end -}}
{{- end -}}
{{- if not $isSet -}}
{{- include "patchbay.reject" (list $c (printf "%s.env[%s]" $c.at $variable.name) (printf "must have valueFrom.fieldRef.fieldPath %s and no value, because the program needs it" $field)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.checkPorts compares the addresses on which the program listens with the ports that others find by name. */ -}}
{{- define "patchbay.checkPorts" -}}
{{- $c := . -}}
{{- range $flag, $port := dict "health-address" "http" "metrics-address" "metrics" "webhook-address" "webhook" -}}
{{- $address := include "patchbay.flag" (list $c $flag "") -}}
{{- if eq $address "" -}}
{{- else if not (regexMatch `^(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*$` $address) -}}
{{- include "patchbay.reject" (list $c (printf "%s.args" $c.at) (printf "flag --%s must be an address with a port: got %q" $flag $address)) -}}
{{- else -}}
{{- $number := splitList ":" $address | last -}}
{{- $declared := "" -}}
{{- range $c.main.ports -}}{{- if and (eq (.name | default "") $port) (eq $declared "") -}}{{- $declared = .containerPort | toString -}}{{- end -}}{{- end -}}
{{- if and (eq $declared "") (ne $port "metrics") -}}
{{- include "patchbay.reject" (list $c (printf "%s.ports" $c.at) (printf "must have the port %s, because it is found by this name" $port)) -}}
{{- else if and (ne $declared "") (ne $declared $number) -}}
{{- include "patchbay.reject" (list $c (printf "%s.ports[%s]" $c.at $port) (printf "must be the port of the flag --%s: got %s and %q" $flag $declared $address)) -}}
{{- end -}}
{{- if and (not $c.spec.hostNetwork) (contains "$(HOST_IP)" $address) -}}
{{- include "patchbay.reject" (list $c (printf "%s.args" $c.at) (printf "flag --%s must not be an address of the node without hostNetwork: got %q" $flag $address)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range (include "patchbay.hostPorts" (dict "spec" .spec) | fromYaml).ports -}}
{{- if hasKey $seen .key -}}
{{- include "patchbay.reject" (list $c (printf "%s.spec.containers[%s].ports" $c.path .container) (printf "must not have %s on the node's network, which container %s has, too" .key (get $seen .key))) -}}
{{- end -}}
{{- $_ := set $seen .key .container -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.hostPorts is a map with the list "ports" of the node that a template uses, each with its container. It is empty without one. */ -}}
{{- define "patchbay.hostPorts" -}}
{{- $spec := .spec -}}
{{- $ports := list -}}
{{- $running := $spec.containers | default list -}}
{{- /* Other init containers end before the program starts. */ -}}
{{- range $spec.initContainers -}}{{- if .restartPolicy -}}{{- $running = append $running . -}}{{- end -}}{{- end -}}
{{- range $container := $running -}}
{{- range $container.ports -}}
{{- $number := ternary .containerPort .hostPort (eq (toString $spec.hostNetwork) "true") | int -}}
{{- if $number -}}
{{- $ports = append $ports (dict "key" (printf "%d/%s" $number (.protocol | default "TCP")) "container" $container.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $ports -}}{{- toYaml (dict "ports" $ports) -}}{{- end -}}
{{- end -}}

{{- define "patchbay.checkNode" -}}
{{- if not .spec.hostNetwork -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.hostNetwork" .path) "must be true: the daemon makes the links of the node") -}}
{{- end -}}
{{- if not .spec.hostPID -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.hostPID" .path) "must be true: CNI plugins that the daemon runs name their namespace by process ID") -}}
{{- end -}}
{{- $grace := .spec.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $grace -}}{{- $grace = 30 -}}{{- end -}}{{- /* the API server's default */ -}}
{{- if lt (int $grace) 60 -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.terminationGracePeriodSeconds" .path) (printf "must be at least 60, because the daemon cleans up the node when it is uninstalled: got %d" (int $grace))) -}}
{{- end -}}
{{- $variable := "$(NODE_NAME)" -}}
{{- $name := include "patchbay.flag" (list . "node-name" $variable) -}}
{{- if and (ne $name $variable) (not .main.command) -}}
{{- include "patchbay.reject" (list . (printf "%s.args" .at) (printf "flag --node-name must be %s, because each Pod is for its own node: got %q" $variable $name)) -}}
{{- end -}}
{{- with .spec.nodeName -}}
{{- include "patchbay.reject" (list $ (printf "%s.spec.nodeName" $.path) (printf "must be left out, because the daemon runs on many nodes: got %s" .)) -}}
{{- end -}}
{{- $system := get (.spec.nodeSelector | default dict) "kubernetes.io/os" -}}
{{- if and (hasKey (.spec.nodeSelector | default dict) "kubernetes.io/os") (ne (toString $system) "linux") -}}
{{- include "patchbay.reject" (list . (printf "%s.spec.nodeSelector[kubernetes.io/os]" .path) (printf "must be linux: got %s" (toString $system))) -}}
{{- end -}}
{{- with .spec.os -}}
{{- if ne (toString .name) "linux" -}}
{{- include "patchbay.reject" (list $ (printf "%s.spec.os.name" $.path) (printf "must be linux: got %s" (toString .name))) -}}
{{- end -}}
{{- end -}}
{{- include "patchbay.checkCapabilities" . -}}
{{- $journal := include "patchbay.flag" (list . "journal" "/var/lib/patchbay/journal") -}}
{{- $c := . -}}
{{- range list
  (dict "volume" "cni-bin" "at" (include "patchbay.flag" (list $c "cni-bin-dir" "/opt/cni/bin")))
  (dict "volume" "cni-conf" "at" (include "patchbay.flag" (list $c "cni-conf-dir" "/etc/cni/net.d")))
  (dict "volume" "run" "at" "/run/patchbay" "host" "/run/patchbay")
  (dict "volume" "state" "at" (dir $journal) "host" "/var/lib/patchbay")
  (dict "volume" "netns" "at" "/run/netns" "follows" true)
  (dict "volume" "netns" "at" "/var/run/netns" "follows" true)
  (dict "volume" "host" "at" (include "patchbay.flag" (list $c "host-root" "/host")) "host" "/" "readOnly" true "follows" true)
-}}
{{- include "patchbay.checkFolder" (merge (dict "c" $c) .) -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.checkFolder requires that the folder "at" of the node is mounted. */ -}}
{{- define "patchbay.checkFolder" -}}
{{- $c := .c -}}
{{- $found := include "patchbay.mount" (list $c .at) -}}
{{- if eq $found "" -}}
{{- include "patchbay.reject" (list $c (printf "%s.volumeMounts" $c.at) (printf "must have a mount at %s, by default of the volume %s" .at .volume)) -}}
{{- else -}}
{{- $mount := index $c.main.volumeMounts (int $found) -}}
{{- $field := printf "%s.volumeMounts[%s]" $c.at $mount.mountPath -}}
{{- if and $mount.readOnly (not .readOnly) -}}
{{- include "patchbay.reject" (list $c $field "must not be read-only, because the daemon writes there") -}}
{{- end -}}
{{- if or $mount.subPath $mount.subPathExpr -}}
{{- include "patchbay.reject" (list $c $field "must have no subPath, because the daemon needs the whole folder of the node") -}}
{{- end -}}
{{- if and .follows (eq ($mount.mountPropagation | default "None") "None") -}}
{{- include "patchbay.reject" (list $c (printf "%s.mountPropagation" $field) "must be HostToContainer, because the daemon needs what the node mounts later") -}}
{{- end -}}
{{- $source := dict -}}
{{- range $c.spec.volumes -}}{{- if eq .name ($mount.name | default "") -}}{{- $source = .hostPath | default dict -}}{{- end -}}{{- end -}}
{{- $field = printf "%s.spec.volumes[%s]" $c.path $mount.name -}}
{{- if not $source -}}
{{- include "patchbay.reject" (list $c $field (printf "must be a hostPath, because the daemon needs the folder of the node at %s" .at)) -}}
{{- else if and .host (ne (clean $source.path) .host) -}}
{{- include "patchbay.reject" (list $c (printf "%s.hostPath.path" $field) (printf "must be %s, where the plugin and earlier daemons look: got %s" .host $source.path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.checkCapabilities requires root, and the capabilities of the default template. */ -}}
{{- define "patchbay.checkCapabilities" -}}
{{- $c := . -}}
{{- $own := .main.securityContext | default dict -}}
{{- $whole := .spec.securityContext | default dict -}}
{{- $user := ternary $own.runAsUser $whole.runAsUser (hasKey $own "runAsUser") -}}
{{- $notRoot := ternary $own.runAsNonRoot $whole.runAsNonRoot (hasKey $own "runAsNonRoot") -}}
{{- if and (not (kindIs "invalid" $user)) (ne (toString $user) "0") -}}
{{- include "patchbay.reject" (list . (printf "%s.securityContext.runAsUser" .at) (printf "must be 0 or not set, because the folders of the node belong to root: got %s" (toString $user))) -}}
{{- end -}}
{{- if $notRoot -}}
{{- include "patchbay.reject" (list . (printf "%s.securityContext.runAsNonRoot" .at) "must not be true, because the folders of the node belong to root") -}}
{{- end -}}
{{- if not $own.privileged -}}
{{- $capabilities := $own.capabilities | default dict -}}
{{- $added := $capabilities.add | default list -}}
{{- range .default.securityContext.capabilities.add -}}
{{- if or (has . ($capabilities.drop | default list)) (not (or (has . $added) (has "ALL" $added))) -}}
{{- include "patchbay.reject" (list $c (printf "%s.securityContext.capabilities.add" $c.at) (printf "must have %s" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "patchbay.checkAgent" -}}
{{- $c := .c -}}
{{- $found := include "patchbay.mount" (list $c "/etc/patchbay/hub") -}}
{{- if eq $found "" -}}
{{- include "patchbay.reject" (list $c (printf "%s.volumeMounts" $c.at) "must have a mount at /etc/patchbay/hub, by default of the volume hub, which is the Secret with the hub's kubeconfig") -}}
{{- else -}}
{{- $name := (index $c.main.volumeMounts (int $found)).name -}}
{{- $isThere := false -}}
{{- range $c.spec.volumes -}}{{- if eq .name $name -}}{{- $isThere = true -}}{{- end -}}{{- end -}}
{{- if not $isThere -}}
{{- include "patchbay.reject" (list $c (printf "%s.spec.volumes" $c.path) (printf "must have the volume %s, which is mounted at /etc/patchbay/hub" $name)) -}}
{{- end -}}
{{- end -}}
{{- $cluster := "" -}}
{{- range $c.main.env -}}{{- if eq .name "CLUSTER" -}}{{- $cluster = .value | default "" -}}{{- end -}}{{- end -}}
{{- if ne $cluster .cluster -}}
{{- include "patchbay.reject" (list $c (printf "%s.env[CLUSTER]" $c.at) (printf "must be left out, because the field cluster of the part sets it to %s" .cluster)) -}}
{{- end -}}
{{- end -}}

{{- /* patchbay.checkPortsOfParts requires that the controller can run on a node beside the daemon. */ -}}
{{- define "patchbay.checkPortsOfParts" -}}
{{- $used := dict -}}
{{- $node := include "patchbay.workload" (dict "root" . "part" "node") | fromYaml -}}
{{- $controller := include "patchbay.workload" (dict "root" . "part" "controller") | fromYaml -}}
{{- range (include "patchbay.hostPorts" $node.spec.template | fromYaml).ports -}}
{{- if not (hasKey $used .key) -}}{{- $_ := set $used .key .container -}}{{- end -}}
{{- end -}}
{{- range (include "patchbay.hostPorts" $controller.spec.template | fromYaml).ports -}}
{{- if hasKey $used .key -}}
{{- fail (printf "parts.controller.template.spec.containers[%s].ports: must not have %s on the node's network, which container %s of the node daemon uses on every node" .container .key (get $used .key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
