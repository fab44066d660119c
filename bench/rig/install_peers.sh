#!/usr/bin/env bash
# What the rig compares against: wrk, nginx and haproxy from Debian; routers from PyPI, each
# in a virtual environment below PEERS_DIR.
set -euo pipefail
peers=${PEERS_DIR:-$HOME/.cache/peers}
mkdir -p "$peers"
apt-get update -q
apt-get install -qy wrk nginx-light haproxy gcc
for spec in vr:vllm-router==0.1.17 smg:smg==1.13.0 sgl:sglang-router==0.3.2; do
    venv=$peers/${spec%%:*}
    [ -d "$venv" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install -q "${spec#*:}"
done
echo "peers in $peers"
