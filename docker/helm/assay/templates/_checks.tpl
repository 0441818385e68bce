{{- /* Values that a schema cannot judge, or not in words: all faults at once. */ -}}
{{- define "assay.checks" -}}
{{- $registry := .Values.image.registry }}
{{- $faults := list }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" $registry) }}
{{- $faults = append $faults (printf "image.registry: %q given; allowed: host[:port][/path], such as registry.example/assay" $registry) }}
{{- end }}
{{- if gt (int .Values.workers.idleSeconds) (int .Values.workers.seconds) }}
{{- $faults = append $faults (printf "workers.idleSeconds: %v given; allowed: at most workers.seconds, %v" .Values.workers.idleSeconds .Values.workers.seconds) }}
{{- end }}
{{- with .Values.workers.gateway.url }}
{{- $asked := regexReplaceAll ":[0-9]+$" (urlParse .).host "" }}
{{- $known := list $.Values.host $.Values.gateway.host | compact }}
{{- if not (has $asked $known) }}
{{- $faults = append $faults (printf "workers.gateway.url: %q given; allowed: an address of %s (host, gateway.host)" . (join " or " $known)) }}
{{- end }}
{{- end }}
{{- $names := .Files.Get "settings.yaml" | fromYaml }}
{{- range $part := list "service" "keeper" "workers" }}
  {{- $kind := ternary "service" "workers" (eq $part "service") }}
  {{- $others := index $names (ternary "workers" "service" (eq $part "service")) }}
  {{- range $given, $_ := index (index $.Values $part) "settings" }}
    {{- $name := trimPrefix "ASSAY_" $given }}
    {{- $said := "" }}
    {{- if not (hasPrefix "ASSAY_" $given) }}
    {{- else if hasKey $names.values $name }}
      {{- $said = printf "the chart sets it; allowed: the value %s" (index $names.values $name) }}
    {{- else if has $name $names.fixed }}
      {{- $said = "the chart sets it" }}
    {{- else if and (eq $part "workers") (eq $name "REPEAT") }}
      {{- $said = "the service decides it for these workers; allowed: service.settings" }}
    {{- else if has $name $others }}
      {{- $said = printf "it is a setting of %s" (ternary "keeper.settings or workers.settings" "service.settings" (eq $part "service")) }}
    {{- else if not (or (has $name $names.both) (has $name (index $names $kind))) }}
      {{- $near := list }}
      {{- range concat $names.both (index $names $kind) }}
        {{- $own := . }}
        {{- $same := list }}
        {{- range splitList "_" $name }}
          {{- if and (gt (len .) 2) (has . (splitList "_" $own)) }}
            {{- $same = append $same . }}
          {{- end }}
        {{- end }}
        {{- if $same }}
          {{- $near = append $near (printf "%d ASSAY_%s" (len $same) .) }}
        {{- end }}
      {{- end }}
      {{- $said = "no setting of Assay" }}
      {{- with $near | sortAlpha | last }}
        {{- $said = printf "%s; did you mean %s?" $said (. | splitList " " | last) }}
      {{- end }}
    {{- end }}
    {{- with $said }}
      {{- $faults = append $faults (printf "%s.settings.%s: %s" $part $given .) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with $faults }}
{{- fail (printf "\n%s" (join "\n" .)) }}
{{- end }}
{{- end }}
