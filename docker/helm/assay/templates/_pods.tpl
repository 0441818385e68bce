{{- /* What every pod is: of no privilege, without a token of the API server. */ -}}
{{- define "assay.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
# Something must reap the processes that outlive an evaluator; the pause container does.
shareProcessNamespace: true
terminationGracePeriodSeconds: 60
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "assay.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Settings of a container, from a dictionary of name and value. */ -}}
{{- define "assay.settings" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- /* Passwords, where Assay looks for them: (list . "database" "redis") */ -}}
{{- define "assay.passwords" -}}
{{- $root := index . 0 -}}
- name: passwords
  projected:
    defaultMode: 0440
    sources:
    {{- range rest . }}
      - secret:
          name: {{ index $root.Values . "secret" }}
          items: [{key: password, path: assay_{{ . }}_password}]
    {{- end }}
{{- end }}

{{- /* The object store, and its key as variables: of the service and the keeper alone. */ -}}
{{- define "assay.files.settings" -}}
{{- with .Values.files }}
{{- if .url }}
ASSAY_FILES: {{ .url | quote }}
{{- with .endpoint }}
ASSAY_S3_ENDPOINT: {{ . | quote }}
{{- end }}
{{- with .region }}
ASSAY_S3_REGION: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.files.key" -}}
{{- with .Values.files.secret }}
- name: ASSAY_S3_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: access-key-id}}
- name: ASSAY_S3_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: secret-access-key}}
{{- end }}
{{- end }}

{{- define "assay.worker.settings" -}}
ASSAY_DATA_ROOT: /data
ASSAY_WEIGHTS_ROOT: /weights
ASSAY_LOG_FORMAT: json
ASSAY_SANDBOX: required
{{- end }}

{{- define "assay.worker.mounts" -}}
- {name: passwords, mountPath: /run/secrets, readOnly: true}
- {name: state, mountPath: /var/lib/assay}
- {name: tmp, mountPath: /tmp}
# Data loaders hand batches over in shared memory.
- {name: shared, mountPath: /dev/shm}
{{- if or .Values.data.claim .Values.data.staging }}
- {name: data, mountPath: /data, readOnly: true}
{{- end }}
{{- if .Values.storage.weights.claim }}
- {name: weights, mountPath: /weights, readOnly: true}
{{- end }}
{{- end }}

{{- define "assay.worker.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 4Gi}
- name: shared
  emptyDir: {medium: Memory, sizeLimit: 2Gi}
{{- include "assay.data" . }}
{{- with .Values.data.staging.size }}
- name: data
  emptyDir: {sizeLimit: {{ . }}}
{{- end }}
{{- with .Values.storage.weights.claim }}
- name: weights
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "assay.data" -}}
{{- with .Values.data.claim }}
- name: data
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* Fills the folder of data sets before a worker starts; a list of the root and settings, with the key if any. */ -}}
{{- define "assay.staging" -}}
{{- $root := index . 0 }}
{{- $settings := index . 1 }}
{{- with $root.Values.data.staging }}
initContainers:
  - name: staging
    image: {{ .image }}
    command: {{ toJson .command }}
    {{- include "assay.container" $root | nindent 4 }}
    {{- with $settings }}
    env: {{- include "assay.settings" . | trim | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: data, mountPath: /data}
      - {name: tmp, mountPath: /tmp}
      {{- if $settings }}
      - {name: passwords, mountPath: /run/secrets, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}
