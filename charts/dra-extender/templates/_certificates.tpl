{{/*
Generated certificates. An upgrade keeps existing certificates until their last 30 days. A rendering generates them once and stores
them in the values, because the Secrets and the CA's checksum need the same ones. A rendering without a cluster, such as
`helm template`, finds no Secrets and generates new ones each time: use cert-manager there.
*/}}
{{- define "dra-extender.generated" -}}
{{- if not (hasKey .Values "generatedCertificates") -}}
{{- $server := lookup "v1" "Secret" .Release.Namespace (include "dra-extender.serverSecret" .) | default dict -}}
{{- $client := lookup "v1" "Secret" .Release.Namespace (include "dra-extender.clientSecret" .) | default dict -}}
{{- $until := dig "metadata" "annotations" "dra-extender.dev/not-after" "" $server -}}
{{- $soon := now | dateModify "+720h" | date "2006-01-02" -}}
{{- $sameAuthority := eq (dig "data" "ca.crt" "server" $server) (dig "data" "ca.crt" "client" $client) -}}
{{- $sameClient := eq (dig "metadata" "annotations" "dra-extender.dev/client" "" $client) .Values.certificates.clientName -}}
{{- $made := dict -}}
{{- if and $sameAuthority $sameClient (gt $until $soon) -}}
{{- $made = dict "until" $until "server" $server.data "client" $client.data -}}
{{- else -}}
{{- $days := int .Values.certificates.days -}}
{{- $host := include "dra-extender.host" . -}}
{{- $name := include "dra-extender.fullname" . -}}
{{- $names := list $host (printf "%s.cluster.local" $host) -}}
{{- $authority := genCAWithKey (printf "%s-ca" $name) $days (genPrivateKey "ecdsa") -}}
{{- $serving := genSignedCertWithKey $name nil $names $days $authority (genPrivateKey "ecdsa") -}}
{{- $calling := genSignedCertWithKey .Values.certificates.clientName nil nil $days $authority (genPrivateKey "ecdsa") -}}
{{- $until = now | dateModify (printf "+%dh" (mul 24 $days)) | date "2006-01-02" -}}
{{- $made = dict "until" $until
  "server" (dict "tls.crt" ($serving.Cert | b64enc) "tls.key" ($serving.Key | b64enc) "ca.crt" ($authority.Cert | b64enc))
  "client" (dict "tls.crt" ($calling.Cert | b64enc) "tls.key" ($calling.Key | b64enc) "ca.crt" ($authority.Cert | b64enc)) -}}
{{- end -}}
{{- $_ := set .Values "generatedCertificates" $made -}}
{{- end -}}
{{- toJson .Values.generatedCertificates -}}
{{- end -}}
