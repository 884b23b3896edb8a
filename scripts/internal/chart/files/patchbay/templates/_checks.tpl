{{- define "patchbay.checkTemplate" -}}
{{- end -}}
