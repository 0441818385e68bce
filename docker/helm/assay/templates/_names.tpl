{{- define "assay.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "assay.selector" -}}
app.kubernetes.io/name: assay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "assay.labels" -}}
{{ include "assay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* Image of a part: (list . "service") */ -}}
{{- define "assay.image" -}}
{{- $root := index . 0 -}}
image: {{ printf "%s/assay-%s:%s" $root.Values.image.registry (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- end }}

{{- define "assay.state" -}}
{{ .Values.storage.state.claim | default (printf "%s-state" (include "assay.name" .)) }}
{{- end }}

{{- define "assay.state.volume" -}}
- name: state
{{- if and .Values.files.url (not .Values.storage.state.claim) }}
  emptyDir: {sizeLimit: {{ .Values.storage.state.size }}}
{{- else }}
  persistentVolumeClaim: {claimName: {{ include "assay.state" . }}}
{{- end }}
{{- end }}

{{- define "assay.signing" -}}
{{ .Values.storage.signing.claim | default (printf "%s-signing" (include "assay.name" .)) }}
{{- end }}

{{- /* Port of a store's address: (list url default) */ -}}
{{- define "assay.port" -}}
{{- $host := (urlParse (index . 0)).host -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (index . 1) -}}
{{- end }}
