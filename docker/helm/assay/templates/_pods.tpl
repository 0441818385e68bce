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

{{- /* What service, migration and keeper know of database and Redis: addresses, with the authorities if named. */ -}}
{{- define "assay.stores.settings" -}}
{{- $root := . }}
ASSAY_MODE: distributed
{{- range $store, $authority := dict "database" "&sslrootcert=" "redis" "?ssl_ca_certs=" }}
{{- $values := index $root.Values $store }}
ASSAY_{{ upper $store }}_URL: {{ print $values.url (ternary (printf "%s/run/secrets/%s-ca.crt" $authority $store) "" (not (empty $values.ca))) | quote }}
{{- end }}
{{- end }}

{{- /* Passwords, where Assay looks for them, and authorities: (list . "database" "redis") */ -}}
{{- define "assay.passwords" -}}
{{- $root := index . 0 -}}
- name: passwords
  projected:
    defaultMode: 0440
    sources:
    {{- range $store := rest . }}
      {{- $values := index $root.Values $store }}
      - secret:
          name: {{ $values.secret }}
          items: [{key: {{ $values.secretKey | quote }}, path: assay_{{ $store }}_password}]
      {{- with $values.ca }}
      - {{ ternary "secret" "configMap" (hasKey . "secret") }}:
          name: {{ .secret | default .configMap }}
          items: [{key: {{ .key | default "ca.crt" | quote }}, path: {{ $store }}-ca.crt}]
      {{- end }}
    {{- end }}
{{- end }}

{{- /* The key of workers as a volume: (list . "passwords") */ -}}
{{- define "assay.key" -}}
- name: {{ index . 1 }}
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ (index . 0).Values.workers.key }}
          items: [{key: worker, path: assay_worker_key}]
{{- end }}

{{- define "assay.gateway.settings" -}}
ASSAY_GATEWAY: {{ .Values.workers.gateway.url | default (printf "http://%s.%s.svc" (include "assay.name" .) .Release.Namespace) }}
ASSAY_WORKER_KEY_FILE: /run/secrets/assay_worker_key
{{- end }}

{{- /* The stores of files and of data, and their key as variables: of the service and the keeper alone. */ -}}
{{- define "assay.files.settings" -}}
{{- $published := .Values.data.published }}
{{- with .Values.files.url }}
ASSAY_FILES: {{ . | quote }}
{{- end }}
{{- with $published.claim }}
ASSAY_DATA_STORE: /data-store
{{- end }}
{{- with $published.blobs }}
ASSAY_DATA_BLOBS: {{ . | quote }}
{{- end }}
{{- if or .Values.files.url $published.blobs }}
{{- with .Values.files.endpoint }}
ASSAY_S3_ENDPOINT: {{ . | quote }}
{{- end }}
{{- with .Values.files.region }}
ASSAY_S3_REGION: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The store of data in a pod: (list . "ro" or "rw"), and its volume. */ -}}
{{- define "assay.published.mount" -}}
{{- if (index . 0).Values.data.published.claim }}
- {name: published, mountPath: /data-store, readOnly: {{ eq (index . 1) "ro" }}}
{{- end }}
{{- end }}

{{- define "assay.published.volume" -}}
{{- with .Values.data.published.claim }}
- name: published
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- end }}

{{- /* Whether a part stages: (list . "worker"), "yes" or nothing. */ -}}
{{- define "assay.stages" -}}
{{- $data := (index . 0).Values.data -}}
{{- if and $data.scratch (or (eq (index . 1) "worker") (not $data.claim)) }}yes{{ end -}}
{{- end }}

{{- define "assay.files.key" -}}
{{- with .Values.files.secret }}
- name: ASSAY_S3_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: access-key-id}}
- name: ASSAY_S3_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: secret-access-key}}
{{- end }}
{{- end }}

{{- /*
  Here and below for a part: (list . "worker") or "keeper". A fifth of the scratch folders is left to blocks that
  files do not fill, as a pod with more is evicted.
*/ -}}
{{- define "assay.worker.settings" -}}
{{- if include "assay.stages" . }}
ASSAY_STAGE: "yes"
ASSAY_STAGE_BYTES: {{ div (mul (include "assay.bytes" (index . 0).Values.data.scratch) 4) 5 | quote }}
{{- end }}
ASSAY_DATA_ROOT: /data
ASSAY_WEIGHTS_ROOT: /weights
ASSAY_LOG_FORMAT: json
ASSAY_SANDBOX: required
{{- end }}

{{- define "assay.worker.mounts" -}}
{{- $values := (index . 0).Values }}
- {name: passwords, mountPath: /run/secrets, readOnly: true}
- {name: state, mountPath: /var/lib/assay}
- {name: tmp, mountPath: /tmp}
# Data loaders hand batches over in shared memory.
- {name: shared, mountPath: /dev/shm}
{{- if include "assay.stages" . }}
- {name: data, mountPath: /data}
- {name: weights, mountPath: /weights}
{{- else }}
{{- if or $values.data.claim $values.data.staging }}
- {name: data, mountPath: /data, readOnly: true}
{{- end }}
{{- if $values.storage.weights.claim }}
- {name: weights, mountPath: /weights, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.worker.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 4Gi}
- name: shared
  emptyDir: {medium: Memory, sizeLimit: 2Gi}
{{- $root := index . 0 }}
{{- if include "assay.stages" . }}
{{- range list "data" "weights" }}
- name: {{ . }}
  emptyDir: {sizeLimit: {{ $root.Values.data.scratch }}}
{{- end }}
{{- else }}
{{- include "assay.data" $root }}
{{- with $root.Values.data.staging.size }}
- name: data
  emptyDir: {sizeLimit: {{ . }}}
{{- end }}
{{- with $root.Values.storage.weights.claim }}
- name: weights
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "assay.data" -}}
{{- with .Values.data.claim }}
- name: data
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* Fills the folder of data sets before a worker starts; a list of the root and the volume with the key. */ -}}
{{- define "assay.staging" -}}
{{- $root := index . 0 }}
{{- $key := index . 1 }}
{{- with $root.Values.data.staging }}
initContainers:
  - name: staging
    image: {{ .image }}
    command: {{ toJson .command }}
    {{- include "assay.container" $root | nindent 4 }}
    {{- if $key }}
    env: {{- include "assay.settings" (include "assay.gateway.settings" $root | fromYaml) | trim | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: data, mountPath: /data}
      - {name: tmp, mountPath: /tmp}
      {{- with $key }}
      - {name: {{ . }}, mountPath: /run/secrets, readOnly: true}
      {{- end }}
{{- end }}
{{- end }}
