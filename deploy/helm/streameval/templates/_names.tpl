{{/* The labels that select the pods; app.kubernetes.io/name is the job that rules and dashboards ask for. */}}
{{- define "streameval.selector" -}}
app.kubernetes.io/name: streameval
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streameval.labels" -}}
{{ include "streameval.selector" . }}
app.kubernetes.io/part-of: streameval
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* One name for all objects: the release's, with the chart's unless it is in there. */}}
{{- define "streameval.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end }}
