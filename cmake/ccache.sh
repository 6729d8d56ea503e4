#!/bin/sh
# The compiler behind ccache, with settings that find a file again in another folder and with precompiled headers.
CCACHE_BASEDIR=${0%/cmake/*} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime exec ccache "$@"
