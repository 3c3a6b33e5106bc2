{{/* What the schema cannot say. Every message names what to set. */}}
{{- define "dra-extender.validation" -}}
{{- $made := dict
  "listen" "the chart makes it; leave it out"
  "insight_listen" "the chart makes it; leave it out"
  "insight_authorization" "it stays on; leave it out, and give readers the ClusterRole of insight (docs/insight.md)"
  "tls_cert" "see certificates.source"
  "tls_key" "see certificates.source"
  "tls_client_ca" "see certificates.source"
  "allowed_clients" "set certificates.clientName"
  "allow_plain_http" "the verbs have TLS here; leave it out"
  "allow_any_client" "clients show certificates here; leave it out"
  "kubeconfig" "the service account is used; leave it out"
  "context" "the service account is used; leave it out"
  "server" "the service account is used; leave it out"
  "namespace" "it is that of the release; install with --namespace"
  "identity" "it is the name of the pod; leave it out"
  "leader_election" "it stays on; leave it out"
  "lease_name" "set fullnameOverride"
  "advertise" "it is the address of the pod; leave it out"
  "peer_name" "it is the name in the certificate of the replicas; leave it out"
  "scheduler_names" "set schedulerName"
  "advise_only" "set mode=advisor" -}}
{{- range $name, $remedy := $made -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "settings.%s: %s." $name $remedy) -}}
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
{{- fail (printf "metrics.%s: there is no alert %s. Name one of %s." $value $name (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if get .Values.kubeScheduler.featureGates "SchedulerPopFromBackoffQ" -}}
{{- fail "kubeScheduler.featureGates.SchedulerPopFromBackoffQ: with it kube-scheduler would try refused pods early and refuse them again. Leave it false." -}}
{{- end -}}
{{- $cluster := lookup "v1" "Namespace" "" "kube-system" -}}
{{- $advisor := eq .Values.mode "advisor" -}}
{{- if and (eq .Values.mode "secondary") (eq (include "dra-extender.schedulerName" .) "default-scheduler") -}}
{{- fail "schedulerName: default-scheduler is the cluster's own. Choose another name, or set mode=stock to have the cluster's own scheduler call the extender." -}}
{{- end -}}
{{- if and (not $advisor) (semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "mode: %s needs kube-scheduler 1.34 or newer, and this cluster is %s. Set mode=advisor, or upgrade the cluster." .Values.mode .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.mode "stock") (not .Values.nodes) -}}
{{- fail "nodes: in mode stock the cluster's scheduler places nothing while the extender is away, the extender included. Name the nodes that run it, for example --set 'nodes={control-plane-1,control-plane-2}'; its pods go there without a scheduler." -}}
{{- end -}}
{{- if and (ne .Values.mode "secondary") .Values.networkPolicy.enabled (not .Values.networkPolicy.schedulerCIDRs) -}}
{{- fail (printf "networkPolicy.schedulerCIDRs: in mode %s the cluster's kube-scheduler calls the extender from its node's address, which the NetworkPolicy would refuse. Set the addresses of the control-plane nodes, for example networkPolicy.schedulerCIDRs={10.0.0.1/32}, or networkPolicy.enabled=false." .Values.mode) -}}
{{- end -}}
{{- if and $advisor (eq (include "dra-extender.preemption" .) "on") -}}
{{- fail "settings.preemption: an advisor evicts nobody. Set settings.preemption=advise, or mode=secondary or stock." -}}
{{- end -}}
{{- if and $advisor (eq .Values.policy.action "Deny") -}}
{{- fail "policy.action: in mode advisor the in-tree plugin allocates, and Deny would keep pods from it. Set policy.action=None." -}}
{{- end -}}
{{- if and (ne .Values.certificates.source "certManager") .Values.certificates.issuerRef -}}
{{- fail "certificates.issuerRef is for cert-manager. Set certificates.source=certManager, or leave it out." -}}
{{- end -}}
{{- if eq (include "dra-extender.serverSecret" .) (include "dra-extender.clientSecret" .) -}}
{{- fail "certificates.serverSecret and certificates.clientSecret are the same: the extender and kube-scheduler each need a key of their own. Name two Secrets." -}}
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
{{- fail (printf "certificates.source: there is no Secret %s in namespace %s. Create it (docs/install.md, Certificates), or set certificates.source=generated." $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
