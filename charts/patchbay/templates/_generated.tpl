{{- /* Generated from deployments/ by `make generate`. Do not edit. */ -}}
{{- define "patchbay.registry" -}}
patchbay.local
{{- end -}}
{{- define "patchbay.default.node" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  labels:
    app.kubernetes.io/name: patchbayd
    app.kubernetes.io/part-of: patchbay
  name: patchbayd
  namespace: {{ .Release.Namespace | quote }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: patchbayd
  template:
    metadata:
      annotations:
        kubectl.kubernetes.io/default-container: patchbayd
      labels:
        app.kubernetes.io/name: patchbayd
    spec:
      containers:
      - args:
        - --node-name=$(NODE_NAME)
        - --host-root=/host
        - --health-address=[$(HOST_IP)]:9640
        - --metrics-address=[$(HOST_IP)]:9644
        env:
        - name: NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        - name: HOST_IP
          valueFrom:
            fieldRef:
              fieldPath: status.hostIP
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        image: patchbay.local/patchbayd:devel
        imagePullPolicy: IfNotPresent
        livenessProbe:
          failureThreshold: 6
          httpGet:
            path: /healthz
            port: http
          periodSeconds: 10
          timeoutSeconds: 5
        name: patchbayd
        ports:
        - containerPort: 9640
          name: http
        - containerPort: 9644
          name: metrics
        readinessProbe:
          httpGet:
            path: /readyz
            port: http
          periodSeconds: 2
          timeoutSeconds: 5
        resources:
          limits:
            memory: 512Mi
          requests:
            cpu: 50m
            memory: 80Mi
        securityContext:
          allowPrivilegeEscalation: false
          appArmorProfile:
            type: Unconfined
          capabilities:
            add:
            - NET_ADMIN
            - NET_RAW
            - SYS_ADMIN
            - SYS_CHROOT
            - DAC_OVERRIDE
            drop:
            - ALL
          privileged: false
          readOnlyRootFilesystem: true
          seccompProfile:
            type: RuntimeDefault
        startupProbe:
          failureThreshold: 60
          httpGet:
            path: /healthz
            port: http
          periodSeconds: 1
        volumeMounts:
        - mountPath: /opt/cni/bin
          name: cni-bin
        - mountPath: /etc/cni/net.d
          name: cni-conf
        - mountPath: /run/patchbay
          name: run
        - mountPath: /var/lib/patchbay
          name: state
        - mountPath: /run/netns
          mountPropagation: HostToContainer
          name: netns
        - mountPath: /var/run/netns
          mountPropagation: HostToContainer
          name: netns
        - mountPath: /host
          mountPropagation: HostToContainer
          name: host
      dnsPolicy: Default
      enableServiceLinks: false
      hostNetwork: true
      hostPID: true
      nodeSelector:
        kubernetes.io/os: linux
      priorityClassName: system-node-critical
      serviceAccountName: patchbayd
      terminationGracePeriodSeconds: 60
      tolerations:
      - operator: Exists
      volumes:
      - hostPath:
          path: /opt/cni/bin
          type: DirectoryOrCreate
        name: cni-bin
      - hostPath:
          path: /etc/cni/net.d
          type: DirectoryOrCreate
        name: cni-conf
      - hostPath:
          path: /run/patchbay
          type: DirectoryOrCreate
        name: run
      - hostPath:
          path: /var/lib/patchbay
          type: DirectoryOrCreate
        name: state
      - hostPath:
          path: /run/netns
          type: DirectoryOrCreate
        name: netns
      - hostPath:
          path: /
        name: host
  updateStrategy:
    rollingUpdate:
      maxUnavailable: 10%
    type: RollingUpdate
{{- end -}}
{{- define "patchbay.default.controller" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app.kubernetes.io/name: patchbay-controller
    app.kubernetes.io/part-of: patchbay
  name: patchbay-controller
  namespace: {{ .Release.Namespace | quote }}
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: patchbay-controller
  strategy:
    rollingUpdate:
      maxSurge: 0
      maxUnavailable: 1
    type: RollingUpdate
  template:
    metadata:
      annotations:
        kubectl.kubernetes.io/default-container: patchbay-controller
      labels:
        app.kubernetes.io/name: patchbay-controller
    spec:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - podAffinityTerm:
              labelSelector:
                matchLabels:
                  app.kubernetes.io/name: patchbay-controller
              topologyKey: kubernetes.io/hostname
            weight: 100
      containers:
      - args:
        - --health-address=[$(HOST_IP)]:9641
        - --metrics-address=[$(HOST_IP)]:9645
        - --webhook-address=[$(HOST_IP)]:9642
        env:
        - name: HOST_IP
          valueFrom:
            fieldRef:
              fieldPath: status.hostIP
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        - name: GOMEMLIMIT
          value: 400MiB
        image: patchbay.local/patchbay-controller:devel
        imagePullPolicy: IfNotPresent
        lifecycle:
          preStop:
            sleep:
              seconds: 3
        livenessProbe:
          failureThreshold: 6
          httpGet:
            path: /healthz
            port: http
          periodSeconds: 10
          timeoutSeconds: 5
        name: patchbay-controller
        ports:
        - containerPort: 9641
          name: http
        - containerPort: 9645
          name: metrics
        - containerPort: 9642
          name: webhook
        readinessProbe:
          httpGet:
            path: /readyz
            port: http
          periodSeconds: 2
          timeoutSeconds: 5
        resources:
          limits:
            memory: 512Mi
          requests:
            cpu: 20m
            memory: 64Mi
        securityContext:
          allowPrivilegeEscalation: false
          capabilities:
            drop:
            - ALL
          readOnlyRootFilesystem: true
      dnsPolicy: Default
      enableServiceLinks: false
      hostNetwork: true
      nodeSelector:
        kubernetes.io/os: linux
      priorityClassName: system-cluster-critical
      securityContext:
        runAsGroup: 65532
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile:
          type: RuntimeDefault
      serviceAccountName: patchbay-controller
      terminationGracePeriodSeconds: 30
      tolerations:
      - effect: NoSchedule
        key: node-role.kubernetes.io/control-plane
        operator: Exists
      - effect: NoSchedule
        key: node.kubernetes.io/not-ready
        operator: Exists
{{- end -}}
{{- define "patchbay.default.placementAgent" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app.kubernetes.io/name: patchbay-agent
    app.kubernetes.io/part-of: patchbay
  name: patchbay-agent
  namespace: {{ .Release.Namespace | quote }}
spec:
  replicas: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: patchbay-agent
  template:
    metadata:
      annotations:
        kubectl.kubernetes.io/default-container: patchbay-agent
      labels:
        app.kubernetes.io/name: patchbay-agent
    spec:
      containers:
      - args:
        - --cluster=$(CLUSTER)
        - --hub-kubeconfig=/etc/patchbay/hub/kubeconfig
        - --join
        - --health-address=$(POD_IP):9642
        env:
        - name: CLUSTER
          value: ""
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        - name: POD_SERVICE_ACCOUNT
          valueFrom:
            fieldRef:
              fieldPath: spec.serviceAccountName
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        image: patchbay.local/patchbay-agent:devel
        imagePullPolicy: IfNotPresent
        livenessProbe:
          failureThreshold: 6
          httpGet:
            path: /healthz
            port: http
          periodSeconds: 10
          timeoutSeconds: 5
        name: patchbay-agent
        ports:
        - containerPort: 9642
          name: http
        readinessProbe:
          httpGet:
            path: /readyz
            port: http
          periodSeconds: 5
          timeoutSeconds: 5
        resources:
          limits:
            memory: 256Mi
          requests:
            cpu: 10m
            memory: 64Mi
        securityContext:
          allowPrivilegeEscalation: false
          capabilities:
            drop:
            - ALL
          readOnlyRootFilesystem: true
        volumeMounts:
        - mountPath: /etc/patchbay/hub
          name: hub
          readOnly: true
      enableServiceLinks: false
      nodeSelector:
        kubernetes.io/os: linux
      priorityClassName: system-cluster-critical
      securityContext:
        runAsGroup: 65532
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile:
          type: RuntimeDefault
      serviceAccountName: patchbay-agent
      volumes:
      - name: hub
        secret:
          secretName: patchbay-agent-hub
{{- end -}}
{{- define "patchbay.mergeKeys" -}}
metadata.ownerReferences: uid
spec.containers: name
spec.containers.env: name
spec.containers.ports: containerPort
spec.containers.volumeDevices: devicePath
spec.containers.volumeMounts: mountPath
spec.ephemeralContainers: name
spec.ephemeralContainers.env: name
spec.ephemeralContainers.ports: containerPort
spec.ephemeralContainers.volumeDevices: devicePath
spec.ephemeralContainers.volumeMounts: mountPath
spec.evictionResponders: name
spec.hostAliases: ip
spec.imagePullSecrets: name
spec.initContainers: name
spec.initContainers.env: name
spec.initContainers.ports: containerPort
spec.initContainers.volumeDevices: devicePath
spec.initContainers.volumeMounts: mountPath
spec.resourceClaims: name
spec.schedulingGates: name
spec.topologySpreadConstraints: topologyKey
spec.volumes: name
spec.volumes.ephemeral.volumeClaimTemplate.metadata.ownerReferences: uid
{{- end -}}
