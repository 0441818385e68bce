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

{{- /* Where a store may be reached, as peers of a network policy: its `cidr`, one or several, and `to`. */ -}}
{{- define "assay.peers" -}}
{{- $cidrs := kindIs "slice" .cidr | ternary .cidr (list .cidr | compact) }}
{{- range $cidrs }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- with .to }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Bytes of a size such as 50Gi. */ -}}
{{- define "assay.bytes" -}}
{{- $unit := get (dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[MGT]i$" .) -}}
{{- mul (regexFind "^[0-9]+" .) $unit -}}
{{- end }}

{{- /*
  Resources of a container, which asks for all that the folders of its pod may take on the node's disk, unless the
  values do: (list resources volumes)
*/ -}}
{{- define "assay.resources" -}}
{{- $asked := deepCopy (index . 0) }}
{{- $sum := 0 }}
{{- range index . 1 | fromYamlArray }}
  {{- with .emptyDir }}
    {{- if not .medium }}
      {{- $sum = add $sum (include "assay.bytes" .sizeLimit) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if not (hasKey $asked.requests "ephemeral-storage") }}
{{- $_ := set $asked.requests "ephemeral-storage" (printf "%dMi" (div $sum 1048576)) }}
{{- end }}
{{- toYaml $asked }}
{{- end }}

{{- /* Which nodes take a pod, and before whom. */ -}}
{{- define "assay.placement" -}}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $ $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Port of a store's address: (list url default) */ -}}
{{- define "assay.port" -}}
{{- $host := (urlParse (index . 0)).host -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (index . 1) -}}
{{- end }}
