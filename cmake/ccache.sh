#!/bin/sh
# The compiler through ccache, or alone without ccache. The settings find a file again in another folder and with
# precompiled headers. Depend mode compares the text of every header. Preprocessed text would hide a changed comment,
# and then a precompiled header of the old text no longer knows the file it contains: #pragma once compares files
# whole.
command -v ccache >/dev/null || exec "$@"
CCACHE_BASEDIR=${0%/cmake/*} CCACHE_DEPEND=1 CCACHE_NAMESPACE=trafo CCACHE_NOHASHDIR=1 \
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime exec ccache "$@"
