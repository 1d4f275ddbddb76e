#!/usr/bin/env bash
# Gradescope runs this as root, once, when it builds the image.
set -euo pipefail
cd "${GRADESCOPE_ROOT:-/autograder}/source/course"
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends bubblewrap python3 python3-venv
python3 -m venv .venv
.venv/bin/pip install --no-cache-dir uv
# torch for processors alone: without GPUs, the rest of it is 3 GB that nothing uses.
.venv/bin/uv pip install --no-cache --torch-backend=cpu --constraint requirements.txt --editable '.[course]' ||
    .venv/bin/pip install --no-cache-dir --constraint requirements.txt --editable '.[course]'
