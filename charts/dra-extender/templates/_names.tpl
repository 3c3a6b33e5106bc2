{{/* Names and labels: those of the manifests when the release is called dra-extender. */}}

{{- define "dra-extender.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "dra-extender" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-dra-extender" (.Release.Name | trunc 27 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "dra-extender.schedulerName" -}}
{{- .Values.schedulerName | default (ternary "dra-scheduler" "default-scheduler" (eq .Values.mode "secondary")) -}}
{{- end -}}

{{/* In mode shadow one replica keeps the record. */}}
{{- define "dra-extender.replicas" -}}
{{- ternary 1 (int .Values.replicas) (eq .Values.mode "shadow") -}}
{{- end -}}

{{- define "dra-extender.serverSecret" -}}
{{- .Values.certificates.serverSecret | default (printf "%s-tls" (include "dra-extender.fullname" .)) -}}
{{- end -}}

{{- define "dra-extender.clientSecret" -}}
{{- .Values.certificates.clientSecret | default (printf "%s-client-tls" (include "dra-extender.fullname" .)) -}}
{{- end -}}

{{/* The name by which kube-scheduler calls it. */}}
{{- define "dra-extender.host" -}}
{{- printf "%s.%s.svc" (include "dra-extender.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* What a Deployment, a Service and a policy select by. Never changed: selectors of Deployments cannot be. */}}
{{- define "dra-extender.selector" -}}
app.kubernetes.io/name: dra-extender
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dra-extender.schedulerSelector" -}}
app.kubernetes.io/name: dra-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object, in addition to app.kubernetes.io/name. */}}
{{- define "dra-extender.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: dra-extender
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Topology spread: constraints without a selector are about the pods that this one names. Call with `constraints` and `selector`. */}}
{{- define "dra-extender.spread" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (.selector | fromYaml)) "matchLabelKeys" (list "pod-template-hash") -}}
{{- $made := list -}}
{{- range .constraints -}}
{{- $made = append $made (ternary . (merge (deepCopy .) $selector) (hasKey . "labelSelector")) -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{- define "dra-extender.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The release of the cluster, without what providers append to it. */}}
{{- define "dra-extender.schedulerImage" -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- printf "%s:%s" .Values.kubeScheduler.image.repository (.Values.kubeScheduler.image.tag | default $version) -}}
{{- end -}}

{{/* The ConfigMap with the configuration of kube-scheduler. */}}
{{- define "dra-extender.schedulerConfigName" -}}
{{- if eq .Values.mode "secondary" -}}
{{- printf "%s-config" (include "dra-extender.schedulerName" .) -}}
{{- else -}}
{{- printf "%s-kube-scheduler-config" (include "dra-extender.fullname" .) -}}
{{- end -}}
{{- end -}}
