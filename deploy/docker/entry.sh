#!/bin/sh
# Numba keeps its kernels in one folder, which it must be able to write. So those of the image are copied to where that is
# so (4 MB), also with a read-only root. What is newer there, made for a processor unlike the builder's, stays.
set -eu
mkdir -p "$NUMBA_CACHE_DIR"
cp -R -u /usr/share/streameval/kernels/. "$NUMBA_CACHE_DIR"
exec streameval "$@"
