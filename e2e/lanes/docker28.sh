#!/usr/bin/env bash
# Docker 28 on cgroups of version 2: overlay2, systemd's cgroup driver, runc.
set -euo pipefail
systemctl start docker
exec "$@"
