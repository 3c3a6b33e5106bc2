{{/* The environment of the extender: what the chart makes of the mode, then the settings of the user. */}}

{{/* `on` and `off` without quotation marks are booleans in YAML. */}}
{{- define "dra-extender.preemption" -}}
{{- $asked := toString (get .Values.settings "preemption") -}}
{{- if or (eq $asked "on") (eq $asked "true") -}}on{{- else if eq $asked "advise" -}}advise{{- else -}}off{{- end -}}
{{- end -}}

{{/* Not empty when pods may request devices as extended resources. */}}
{{- define "dra-extender.extendedResources" -}}
{{- $off := regexMatch "(?i)DRAExtendedResource *= *(false|f|0)" (toString (get .Values.settings "feature_gates")) -}}
{{- if and (include "dra-extender.writes" .) (not $off) -}}true{{- end -}}
{{- end -}}

{{/* Not empty when the extender allocates and binds. */}}
{{- define "dra-extender.writes" -}}
{{- if not (has .Values.mode (list "advisor" "shadow")) -}}true{{- end -}}
{{- end -}}

{{- define "dra-extender.env" -}}
- {name: DRA_EXTENDER_LISTEN, value: "0.0.0.0:8443"}
- {name: DRA_EXTENDER_TLS_CERT, value: /etc/dra-extender/tls/tls.crt}
- {name: DRA_EXTENDER_TLS_KEY, value: /etc/dra-extender/tls/tls.key}
- {name: DRA_EXTENDER_TLS_CLIENT_CA, value: /etc/dra-extender/tls/ca.crt}
- {name: DRA_EXTENDER_ALLOWED_CLIENTS, value: {{ .Values.certificates.clientName | quote }}}
- {name: DRA_EXTENDER_INSIGHT_LISTEN, value: "0.0.0.0:8080"}
- {name: DRA_EXTENDER_INSIGHT_AUTHORIZATION, value: "true"}
- {name: DRA_EXTENDER_SCHEDULER_NAMES, value: {{ ternary "" (include "dra-extender.schedulerName" .) (eq .Values.mode "shadow") | quote }}}
{{- if .Values.expander.enabled }}
- {name: DRA_EXTENDER_EXPANDER_LISTEN, value: "0.0.0.0:8090"}
- {name: DRA_EXTENDER_EXPANDER_ANY_CLIENT, value: {{ .Values.expander.anyClient | quote }}}
{{- end }}
{{- if not (include "dra-extender.writes" .) }}
- {name: DRA_EXTENDER_MODE, value: {{ .Values.mode }}}
{{- end }}
- {name: DRA_EXTENDER_LEADER_ELECTION, value: "true"}
{{- if ne (include "dra-extender.fullname" .) "dra-extender" }}
- {name: DRA_EXTENDER_LEASE_NAME, value: {{ include "dra-extender.fullname" . | quote }}}
{{- end }}
- {name: DRA_EXTENDER_ADVERTISE, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: DRA_EXTENDER_PEER_NAME, value: {{ include "dra-extender.host" . }}} # in the certificate of every replica
- {name: DRA_EXTENDER_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: DRA_EXTENDER_IDENTITY, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- range $name, $value := .Values.settings }}
{{- if eq $name "preemption" }}
{{- if ne (include "dra-extender.preemption" $) "off" }}
- {name: DRA_EXTENDER_PREEMPTION, value: {{ include "dra-extender.preemption" $ | quote }}}
{{- end }}
{{- else if kindIs "map" $value }}
- {name: DRA_EXTENDER_{{ upper $name }}, value: {{ toJson $value | quote }}}
{{- else if kindIs "float64" $value }}
- {name: DRA_EXTENDER_{{ upper $name }}, value: {{ toJson $value | quote }}}
{{- else }}
- {name: DRA_EXTENDER_{{ upper $name }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
