{{/* The configuration of kube-scheduler in each mode: those of scheduler_config/, whose comments say why. */}}

{{- define "dra-extender.extenderEntry" -}}
enableHTTPS: true
tlsConfig:
  serverName: {{ include "dra-extender.host" . }}
  {{- $files := ternary "/etc/dra-extender-client" "/etc/kubernetes/pki/dra-extender" (eq .Values.mode "secondary") }}
  caFile: {{ $files }}/ca.crt
  certFile: {{ $files }}/tls.crt
  keyFile: {{ $files }}/tls.key
nodeCacheCapable: true
{{- end -}}

{{- define "dra-extender.schedulerConfig" -}}
{{- $secondary := eq .Values.mode "secondary" -}}
{{- $name := include "dra-extender.schedulerName" . -}}
{{- $url := printf "https://%s:8443" (include "dra-extender.host" .) -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if eq .Values.mode "advisor" }}
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
leaderElection:
  leaderElect: true
profiles:
  - schedulerName: {{ $name }}
extenders:
  - urlPrefix: {{ $url }}/advisor
    prioritizeVerb: prioritize
    weight: {{ .Values.kubeScheduler.weight | default 2 }}
    httpTimeout: 300ms
    ignorable: true
    {{- include "dra-extender.extenderEntry" . | nindent 4 }}
{{- else }}
clientConnection:
  kubeconfig: {{ ternary "" "/etc/kubernetes/scheduler.conf" $secondary | quote }}
  qps: 100
  burst: 200
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceNamespace: {{ ternary .Release.Namespace "kube-system" $secondary }}
  resourceName: {{ ternary $name "kube-scheduler" $secondary }}
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
  - schedulerName: {{ $name }}
    plugins:
      multiPoint:
        disabled:
          - name: DynamicResources
      preEnqueue:
        enabled:
          - name: DynamicResources
extenders:
  - urlPrefix: {{ $url }}/scheduler
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: {{ .Values.kubeScheduler.weight | default 5 }}
    httpTimeout: 3s
    ignorable: false
    {{- include "dra-extender.extenderEntry" . | nindent 4 }}
  - urlPrefix: {{ $url }}/scheduler
    bindVerb: bind
    httpTimeout: 30s
    ignorable: false
    {{- include "dra-extender.extenderEntry" . | nindent 4 }}
{{- end }}
{{- end -}}
