{{/* Checks that the schema cannot express. Every message names the value to change. */}}
{{- define "dra-extender.validation" -}}
{{- $made := dict
  "listen" "the chart sets it; remove it"
  "insight_listen" "the chart sets it; remove it"
  "insight_authorization" "the chart keeps it on; remove it, and grant readers the ClusterRole of insight (docs/insight-operators.md)"
  "tls_cert" "set certificates.source instead"
  "tls_key" "set certificates.source instead"
  "tls_client_ca" "set certificates.source instead"
  "allowed_clients" "set certificates.clientName instead"
  "allow_plain_http" "the chart always uses TLS; remove it"
  "allow_any_client" "the chart always requires client certificates; remove it"
  "expander_listen" "set expander.enabled"
  "expander_any_client" "set expander.anyClient"
  "kubeconfig" "the chart uses the service account; remove it"
  "context" "the chart uses the service account; remove it"
  "server" "the chart uses the service account; remove it"
  "namespace" "the chart sets the release namespace; use helm install --namespace"
  "identity" "the chart sets the pod name; remove it"
  "leader_election" "the chart keeps it on; remove it"
  "lease_name" "set fullnameOverride"
  "advertise" "the chart sets the pod address; remove it"
  "peer_name" "the chart sets the name in the replicas' certificate; remove it"
  "scheduler_names" "set schedulerName"
  "mode" "set mode=advisor or mode=shadow" -}}
{{- range $name, $remedy := $made -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "settings.%s: %s." $name $remedy) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: set the repository of your image of the extender, for example --set image.repository=registry.example.com/dra-extender. docs/install.md says how to build it." -}}
{{- end -}}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "kubeScheduler.podLabels" .Values.kubeScheduler.podLabels "metrics.labels" .Values.metrics.labels -}}
{{- range $value, $found := $labels -}}
{{- range $label := keys $found -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (hasPrefix "helm.sh/" $label) (hasPrefix "dra-extender.dev/" $label) -}}
{{- fail (printf "%s: the chart sets the label %s. Remove it." $value $label) -}}
{{- end -}}
{{- if and (ne $value "commonLabels") (hasKey $.Values.commonLabels $label) -}}
{{- fail (printf "%s: commonLabels has the label %s too. Remove one of them." $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range .rules -}}
{{- $alerts = append $alerts .alert -}}
{{- end -}}
{{- end -}}
{{- range $value, $names := dict "disabledAlerts" .Values.metrics.disabledAlerts "alertsAfter" (keys .Values.metrics.alertsAfter) -}}
{{- range $name := $names -}}
{{- if not (has $name $alerts) -}}
{{- fail (printf "metrics.%s: unknown alert %s. Use one of %s." $value $name (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if get .Values.kubeScheduler.featureGates "SchedulerPopFromBackoffQ" -}}
{{- fail "kubeScheduler.featureGates.SchedulerPopFromBackoffQ: this gate makes kube-scheduler retry refused pods too early. Set it to false." -}}
{{- end -}}
{{- $cluster := lookup "v1" "Namespace" "" "kube-system" -}}
{{- $reads := not (include "dra-extender.writes" .) -}}
{{- if and (eq .Values.mode "secondary") (eq (include "dra-extender.schedulerName" .) "default-scheduler") -}}
{{- fail "schedulerName: default-scheduler is the name of the cluster's own scheduler. Choose another name, or set mode=stock so that the cluster's own scheduler calls the extender." -}}
{{- end -}}
{{- if and (eq .Values.mode "stock") (not .Values.nodes) -}}
{{- fail "nodes: in mode stock the cluster's scheduler cannot place pods while the extender is down, including the extender's own pods. Set the nodes that run it, for example --set 'nodes={control-plane-1,control-plane-2}'; its pods run there without a scheduler." -}}
{{- end -}}
{{- if and (has .Values.mode (list "stock" "advisor")) .Values.networkPolicy.enabled (not .Values.networkPolicy.schedulerCIDRs) -}}
{{- fail (printf "networkPolicy.schedulerCIDRs: in mode %s the cluster's kube-scheduler calls the extender from its node's address, which the NetworkPolicy blocks. Set the addresses of the control-plane nodes, for example networkPolicy.schedulerCIDRs={10.0.0.1/32}, or networkPolicy.enabled=false." .Values.mode) -}}
{{- end -}}
{{- if and $reads (eq (include "dra-extender.preemption" .) "on") -}}
{{- fail "settings.preemption: modes advisor and shadow evict no pods. Set settings.preemption=advise, or mode=secondary or stock." -}}
{{- end -}}
{{- if and $reads (eq (toString (get .Values.settings "provisioning_requests")) "true") -}}
{{- fail "settings.provisioning_requests: modes advisor and shadow place no pods. Remove it, or set mode=secondary or stock." -}}
{{- end -}}
{{- if and $reads (eq .Values.policy.action "Deny") -}}
{{- fail "policy.action: in modes advisor and shadow the in-tree plugin allocates, and Deny would reject its pods. Set policy.action=None." -}}
{{- end -}}
{{- if and (ne .Values.certificates.source "certManager") .Values.certificates.issuerRef -}}
{{- fail "certificates.issuerRef: only cert-manager uses it. Set certificates.source=certManager, or remove it." -}}
{{- end -}}
{{- if eq (include "dra-extender.serverSecret" .) (include "dra-extender.clientSecret" .) -}}
{{- fail "certificates.serverSecret and certificates.clientSecret are equal, but the extender and kube-scheduler need different keys. Name two Secrets." -}}
{{- end -}}
{{- if $cluster -}}
{{- if and (eq .Values.certificates.source "certManager") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) -}}
{{- fail "certificates.source: this cluster does not serve cert-manager.io/v1. Install cert-manager first, or set certificates.source=generated." -}}
{{- end -}}
{{- if and (or .Values.metrics.rules (ne .Values.metrics.monitor "none")) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "metrics: this cluster does not serve monitoring.coreos.com/v1. Install the Prometheus operator first, or set metrics.rules=false and metrics.monitor=none." -}}
{{- end -}}
{{- if eq .Values.certificates.source "existing" -}}
{{- range $name := list (include "dra-extender.serverSecret" .) (include "dra-extender.clientSecret" .) -}}
{{- if not (lookup "v1" "Secret" $.Release.Namespace $name) -}}
{{- fail (printf "certificates.source: Secret %s does not exist in namespace %s. Create it (docs/install.md, Certificates), or set certificates.source=generated." $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
