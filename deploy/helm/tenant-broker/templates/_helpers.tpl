{{- define "tenant-broker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of all objects. 54 characters leave room for suffixes. */}}
{{- define "tenant-broker.fullname" -}}
{{- $name := include "tenant-broker.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- end -}}

{{- define "tenant-broker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tenant-broker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Helm itself adds app.kubernetes.io/managed-by to the objects of a release. */}}
{{- define "tenant-broker.labels" -}}
{{ include "tenant-broker.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "tenant-broker.serviceAccountName" -}}
{{- default (include "tenant-broker.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* The user as which the API server knows the broker (cluster.identity). */}}
{{- define "tenant-broker.identity" -}}
{{- if .Values.cluster.kubeconfigSecret -}}
{{- .Values.cluster.identity -}}
{{- else -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tenant-broker.serviceAccountName" . }}
{{- end -}}
{{- end -}}

{{- define "tenant-broker.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "tenant-broker.host" -}}
{{- (urlParse .Values.publicUrl).hostname -}}
{{- end -}}

{{/* Port of the container and its name: https or http. */}}
{{- define "tenant-broker.port" -}}
{{- .Values.tls.existingSecret | empty | ternary 8080 8443 -}}
{{- end -}}
{{- define "tenant-broker.portName" -}}
{{- .Values.tls.existingSecret | empty | ternary "http" "https" -}}
{{- end -}}
{{- define "tenant-broker.servicePort" -}}
{{- .Values.service.port | default (.Values.tls.existingSecret | empty | ternary 80 443) -}}
{{- end -}}

{{/* The address with this port, in brackets if it is IPv6. */}}
{{- define "tenant-broker.address" -}}
{{- $address := .root.Values.bindAddress -}}
{{- contains ":" $address | ternary (printf "[%s]" $address) $address -}}:{{ .port }}
{{- end -}}
