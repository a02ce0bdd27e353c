{{/* broker.toml: the settings of the values, and those of the chart, which win. */}}
{{- define "tenant-broker.toml" -}}
{{- $etc := "/etc/tenant-broker" -}}
{{- $cluster := dict "identity" (include "tenant-broker.identity" .) -}}
{{- if .Values.cluster.kubeconfigSecret -}}
{{- $_ := set $cluster "kubeconfig" (printf "%s/cluster/kubeconfig" $etc) -}}
{{- end -}}
{{- $own := dict
      "listen" (include "tenant-broker.address" (dict "root" . "port" (include "tenant-broker.port" .)))
      "operator_listen" (include "tenant-broker.address" (dict "root" . "port" 8081))
      "public_url" .Values.publicUrl
      "state_dir" "/var/lib/tenant-broker"
      "drain_seconds" .Values.drainSeconds
      "cluster" $cluster -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $own "tls" (dict
      "cert_file" (printf "%s/tls/tls.crt" $etc)
      "key_file" (printf "%s/tls/tls.key" $etc)) -}}
{{- end -}}
{{- if .Values.issuer.existingSecret -}}
{{- $files := list -}}
{{- range .Values.issuer.keys -}}
{{- $files = append $files (printf "%s/issuer/%s" $etc .) -}}
{{- end -}}
{{- $_ := set $own "issuer" (dict "signing_key_files" $files) -}}
{{- end -}}
{{- $settings := mergeOverwrite (deepCopy .Values.settings) $own -}}
{{- include "tenant-broker.table" (dict "path" "" "table" $settings) | trim -}}
{{- end -}}

{{/* A table of TOML, its own keys before the tables in it. Null removes a key. */}}
{{- define "tenant-broker.table" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "tenant-broker.key" $key }} = {{ include "tenant-broker.scalar" $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $name := include "tenant-broker.key" $key -}}
{{- $inner := empty $path | ternary $name (printf "%s.%s" $path $name) }}
[{{ $inner }}]
{{- include "tenant-broker.table" (dict "path" $inner "table" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tenant-broker.key" -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toJson .) -}}
{{- end -}}

{{/* Texts and lists of JSON are those of TOML. Numbers of values are floats, but the broker has whole
numbers only; the schema allows no others. */}}
{{- define "tenant-broker.scalar" -}}
{{- if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) -}}
{{- int64 . -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}
