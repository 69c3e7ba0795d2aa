{{- define "delvec.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "delvec.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "delvec.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "delvec.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "delvec.selector" -}}
app.kubernetes.io/name: {{ include "delvec.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "delvec.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "delvec.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "delvec.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "delvec.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "delvec.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "delvec.tokenSecret" -}}
{{- default (printf "%s-token" (include "delvec.fullname" .)) .Values.auth.existingSecret }}
{{- end }}

{{- define "delvec.databaseSecret" -}}
{{- $own := printf "%s-database" (include "delvec.fullname" .) }}
{{- if .Values.postgresql.enabled }}
{{- default $own .Values.postgresql.existingSecret }}
{{- else }}
{{- default $own .Values.externalDatabase.existingSecret }}
{{- end }}
{{- end }}

{{- define "delvec.databaseSecretKey" -}}
{{- if .Values.postgresql.enabled }}
{{- ternary .Values.postgresql.secretKey "password" (ne .Values.postgresql.existingSecret "") }}
{{- else }}
{{- ternary .Values.externalDatabase.secretKey "password" (ne .Values.externalDatabase.existingSecret "") }}
{{- end }}
{{- end }}

{{- define "delvec.databaseUrl" -}}
{{- if .Values.postgresql.enabled }}
{{- printf "postgresql+psycopg://delvec@%s-postgresql:5432/delvec" (include "delvec.fullname" .) }}
{{- else }}
{{- with .Values.externalDatabase }}
{{- printf "postgresql+psycopg://%s@%s:%d/%s?sslmode=%s" (urlquery .user) .host (int .port) (urlquery .database) .sslMode }}
{{- end }}
{{- end }}
{{- end }}

{{/* The database, for whoever needs nothing else. The password is libpq's own variable, so that it needs no encoding. */}}
{{- define "delvec.databaseEnv" -}}
- name: DELVEC_DATABASE_URL
  value: {{ include "delvec.databaseUrl" . | quote }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .secret | default (include "delvec.databaseSecret" .) }}
      key: {{ include "delvec.databaseSecretKey" . }}
{{- end }}

{{- define "delvec.tokenEnv" -}}
- name: DELVEC_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "delvec.tokenSecret" . }}
      key: {{ ternary .Values.auth.secretKey "token" (ne .Values.auth.existingSecret "") }}
{{- end }}

{{- define "delvec.storageEnv" -}}
{{- range $name, $value := .Values.storage.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delvec.envFrom" -}}
{{- with .Values.storage.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delvec.scratchEnv" -}}
- name: HOME
  value: /tmp
{{- end }}

{{- define "delvec.podBasics" -}}
# Kubernetes would add DELVEC_PORT=tcp://… of a service called delvec, which Delvec would take for its own setting.
enableServiceLinks: false
serviceAccountName: {{ include "delvec.serviceAccountName" . }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "delvec.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.persistence.enabled }}
- name: data
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delvec.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.persistence.enabled }}
- name: data
  mountPath: {{ .Values.persistence.mountPath }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The pod of a CronJob that talks to the service and reads and writes data files itself. */}}
{{- define "delvec.commandPod" -}}
restartPolicy: Never
{{ include "delvec.podBasics" . }}
containers:
  - name: delvec
    image: {{ include "delvec.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    env:
      - name: DELVEC_URL
        value: {{ printf "http://%s:%d" (include "delvec.fullname" .) (int .Values.service.port) | quote }}
      {{- include "delvec.tokenEnv" . | nindent 6 }}
      {{- include "delvec.scratchEnv" . | nindent 6 }}
      {{- with include "delvec.storageEnv" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
    {{- with include "delvec.envFrom" . | trim }}
    envFrom:
      {{- . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml .Values.securityContext | nindent 6 }}
    {{- with .resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      {{- include "delvec.volumeMounts" . | nindent 6 }}
volumes:
  {{- include "delvec.volumes" . | nindent 2 }}
{{- end }}

{{- define "delvec.validate" -}}
{{- $external := ne .Values.externalDatabase.host "" }}
{{- if and .Values.postgresql.enabled $external }}
{{- fail "postgresql.enabled and externalDatabase.host contradict each other: choose one database" }}
{{- end }}
{{- if not (or .Values.postgresql.enabled $external) }}
{{- fail "no database is configured: set externalDatabase.host, or postgresql.enabled=true for a trial" }}
{{- end }}
{{- if and $external (not .Values.externalDatabase.existingSecret) (not .Values.externalDatabase.password) }}
{{- fail "the external database has no password: set externalDatabase.existingSecret (or externalDatabase.password)" }}
{{- end }}
{{- if and .Values.postgresql.enabled (not .Values.postgresql.existingSecret) (not .Values.postgresql.password) }}
{{- fail "the bundled database has no password: set postgresql.existingSecret or postgresql.password" }}
{{- end }}
{{- if not .Values.config.roots }}
{{- fail "config.roots is empty: set where tables may be, for example {s3://bucket/lake}" }}
{{- end }}
{{- $roots := .Values.config.roots }}
{{- range .Values.config.namespaceRoots }}
{{- $roots = concat $roots . }}
{{- end }}
{{- range $roots }}
{{- if and (or (hasPrefix "/" .) (hasPrefix "file:" .)) (not $.Values.persistence.enabled) }}
{{- fail (printf "the root %s is a path inside a pod, which other pods cannot see: set persistence.enabled and existingClaim, or use an object store" .) }}
{{- end }}
{{- end }}
{{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) }}
{{- fail "persistence.enabled needs persistence.existingClaim: a claim that all pods can mount (ReadWriteMany)" }}
{{- end }}
{{- if not (or .Values.auth.existingSecret .Values.auth.token) }}
{{- fail "the service needs a token: set auth.existingSecret (or auth.token)" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (not (kindIs "invalid" .Values.podDisruptionBudget.minAvailable)) (not (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable)) }}
{{- fail "podDisruptionBudget takes either minAvailable or maxUnavailable, not both: set the other one to null" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is greater than autoscaling.maxReplicas" }}
{{- end }}
{{- if and .Values.backup.enabled (not .Values.backup.existingClaim) }}
{{- fail "backup.enabled needs backup.existingClaim: the volume for backups" }}
{{- end }}
{{- $least := add .Values.config.drainSeconds 60 | int }}
{{- if and .Values.terminationGracePeriodSeconds (lt (int .Values.terminationGracePeriodSeconds) $least) }}
{{- fail (printf "terminationGracePeriodSeconds is %d, but running commits need config.drainSeconds + 60, which is %d" (int .Values.terminationGracePeriodSeconds) $least) }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "serviceMonitor.enabled needs metrics.enabled" }}
{{- end }}
{{- end }}

{{/* Whether clients in other namespaces, such as a proxy or Prometheus, are expected: "yes", or empty. */}}
{{- define "delvec.servesOtherNamespaces" -}}
{{- if or .Values.ingress.enabled .Values.httpRoute.enabled .Values.serviceMonitor.enabled (ne .Values.service.type "ClusterIP") -}}
yes
{{- end -}}
{{- end -}}
