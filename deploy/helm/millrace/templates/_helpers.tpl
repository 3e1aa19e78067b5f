{{- define "millrace.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "millrace.secret" -}}
{{- .Values.auth.existingSecret | default (include "millrace.fullname" .) -}}
{{- end -}}

{{/* All nodes, as the setting `peers` has them: the same list on each. */}}
{{- define "millrace.peers" -}}
{{- $name := include "millrace.fullname" . -}}
{{- $domain := printf "%s-peers.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain -}}
{{- range $number := untilStep 1 (int (add1 .Values.replicas)) 1 -}}
{{- if gt $number 1 }},{{ end -}}
{{- printf "%d=%s-%d.%s:7000" $number $name $number $domain -}}
{{- end -}}
{{- end -}}

{{/* Refuses what would only fail later. */}}
{{- define "millrace.check" -}}
{{- if not (has (int .Values.replicas) (list 1 3 5 7)) -}}
{{- fail "replicas must be 1, 3, 5 or 7: an even number of nodes survives no more than one node less" -}}
{{- end -}}
{{- $old := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "millrace.fullname" .) -}}
{{- if and $old (ne (int $old.spec.replicas) (int .Values.replicas)) -}}
{{- fail (printf "replicas is %d since the first installation: the nodes of a cluster are changed with millrace cluster add and remove" (int $old.spec.replicas)) -}}
{{- end -}}
{{- range $key := list "peers" "node_id" "peer_listen" "data_dir" "cluster_secret" "default_user" "default_pass" "amqp" "http" "metrics" -}}
{{- if hasKey $.Values.settings $key -}}
{{- fail (printf "settings.%s: the chart sets it; use its other values" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
