{{- /*
patchbay.merge merges a patch into an object, as `kubectl patch` does by default (strategic merge): maps merge,
lists with a merge key merge by it, and everything else is replaced. A map with the directive $patch: delete is
removed, as a null removes it for kubectl. Arguments: "object" is changed, "patch" is
not; "path" names the object in the table "keys" of merge keys, and "field" in errors.
*/ -}}
{{- define "patchbay.merge" -}}
{{- $object := .object -}}
{{- $directive := get .patch "$patch" -}}
{{- if $directive -}}
{{- if not (has $directive (list "replace" "delete")) -}}
{{- fail (printf "%s.$patch: must be replace or delete: got %q" .field $directive) -}}
{{- end -}}
{{- range $name := keys $object -}}{{- $_ := unset $object $name -}}{{- end -}}
{{- end -}}
{{- if hasKey .patch "$retainKeys" -}}
{{- $retained := get .patch "$retainKeys" -}}
{{- range $name := keys .patch -}}
{{- if not (or (eq $name "$retainKeys") (has $name $retained)) -}}
{{- fail (printf "%s.$retainKeys: must list all fields that stay: got none for %s, which the patch sets" $.field $name) -}}
{{- end -}}
{{- end -}}
{{- range $name := keys $object -}}
{{- if not (has $name $retained) -}}{{- $_ := unset $object $name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne $directive "delete" -}}
{{- range $name, $value := .patch -}}
{{- $was := get $object $name -}}
{{- $path := ternary $name (printf "%s.%s" $.path $name) (eq $.path "") -}}
{{- $arguments := dict "object" $was "patch" $value "path" $path "field" (printf "%s.%s" $.field $name) "keys" $.keys -}}
{{- if has $name (list "$patch" "$retainKeys") -}}
{{- else if and (kindIs "map" $value) (eq (toString (get $value "$patch")) "delete") -}}
{{- /* An empty map would stay, such as a probe that Kubernetes rejects. */ -}}
{{- $_ := unset $object $name -}}
{{- else if hasPrefix "$" $name -}}
{{- fail (printf "%s: must not be set: the chart knows the directives $patch and $retainKeys" $arguments.field) -}}
{{- else if not (and (hasKey $object $name) (eq (kindOf $was) (kindOf $value))) -}}
{{- $cleaned := dict -}}
{{- include "patchbay.clean" (dict "value" $value "into" $cleaned) -}}
{{- if hasKey $cleaned "value" -}}{{- $_ := set $object $name $cleaned.value -}}{{- else -}}{{- $_ := unset $object $name -}}{{- end -}}
{{- else if kindIs "map" $value -}}
{{- include "patchbay.merge" $arguments -}}
{{- else if and (kindIs "slice" $value) (hasKey $.keys $path) -}}
{{- $_ := set $arguments "key" (get $.keys $path) -}}
{{- include "patchbay.mergeList" $arguments -}}
{{- $_ := set $object $name $arguments.merged -}}
{{- else -}}
{{- $_ := set $object $name $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
patchbay.mergeList sets "merged" to the list "object" with the elements of the list "patch", which are the same
element if they have the same value of "key". The elements of the patch stay in their order, and each of the
others stays before the element that it preceded.
*/ -}}
{{- define "patchbay.mergeList" -}}
{{- $key := .key -}}
{{- $was := list -}}
{{- $patch := list -}}
{{- $deleted := list -}}
{{- $replace := false -}}
{{- range $i, $element := .patch -}}
{{- if not (hasKey $element $key) -}}
{{- fail (printf "%s[%d].%s: must be set: the elements of this list merge by it" $.field $i $key) -}}
{{- end -}}
{{- $directive := get $element "$patch" -}}
{{- if not $directive -}}{{- $patch = append $patch $element -}}
{{- else if eq $directive "delete" -}}{{- $deleted = append $deleted (toJson (get $element $key)) -}}
{{- else if eq $directive "replace" -}}{{- $replace = true -}}
{{- else -}}{{- fail (printf "%s[%d].$patch: must be replace or delete: got %q" $.field $i $directive) -}}
{{- end -}}
{{- end -}}
{{- if not $replace -}}
{{- range .object -}}
{{- if not (has (toJson (get . $key)) $deleted) -}}{{- $was = append $was . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- /* The elements by the value of the key, and their places in both lists. */ -}}
{{- $elements := dict -}}
{{- $places := dict -}}
{{- range $i, $element := $was -}}
{{- $_ := set $elements (toJson (get $element $key)) $element -}}
{{- $_ := set $places (toJson (get $element $key)) $i -}}
{{- end -}}
{{- $patched := list -}}
{{- range $i, $element := $patch -}}
{{- $value := toJson (get $element $key) -}}
{{- if hasKey $elements $value -}}
{{- include "patchbay.merge" (dict "object" (get $elements $value) "patch" $element "path" $.path "keys" $.keys "field" (printf "%s[%d]" $.field $i)) -}}
{{- else -}}
{{- $cleaned := dict -}}
{{- include "patchbay.clean" (dict "value" $element "into" $cleaned) -}}
{{- $_ := set $elements $value $cleaned.value -}}
{{- end -}}
{{- if not (has $value $patched) -}}{{- $patched = append $patched $value -}}{{- end -}}
{{- end -}}
{{- $others := list -}}
{{- range $was -}}
{{- $value := toJson (get . $key) -}}
{{- if not (has $value $patched) -}}{{- $others = append $others $value -}}{{- end -}}
{{- end -}}
{{- $merged := list -}}
{{- $next := 0 -}}
{{- range $value := $patched -}}
{{- if hasKey $places $value -}}
{{- range $i, $other := $others -}}
{{- if and (ge $i $next) (lt (get $places $other) (get $places $value)) -}}
{{- $merged = append $merged (get $elements $other) -}}
{{- $next = add1 $i | int -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $merged = append $merged (get $elements $value) -}}
{{- end -}}
{{- range $i, $other := $others -}}
{{- if ge $i $next -}}{{- $merged = append $merged (get $elements $other) -}}{{- end -}}
{{- end -}}
{{- $_ := set . "merged" $merged -}}
{{- end -}}

{{- /* patchbay.clean sets "value" of the map "into" to a value without directives, unless it is to be deleted. */ -}}
{{- define "patchbay.clean" -}}
{{- if kindIs "map" .value -}}
{{- if not (hasKey .value "$patch") -}}
{{- $map := dict -}}
{{- range $name, $value := .value -}}
{{- $cleaned := dict -}}
{{- include "patchbay.clean" (dict "value" $value "into" $cleaned) -}}
{{- if and (ne $name "$retainKeys") (hasKey $cleaned "value") -}}{{- $_ := set $map $name $cleaned.value -}}{{- end -}}
{{- end -}}
{{- $_ := set .into "value" $map -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- $list := list -}}
{{- range .value -}}
{{- $cleaned := dict -}}
{{- include "patchbay.clean" (dict "value" . "into" $cleaned) -}}
{{- if hasKey $cleaned "value" -}}{{- $list = append $list $cleaned.value -}}{{- end -}}
{{- end -}}
{{- $_ := set .into "value" $list -}}
{{- else -}}
{{- $_ := set .into "value" .value -}}
{{- end -}}
{{- end -}}
