set(TRAFO_UNITY_SIZE 8 CACHE STRING "Files in a group; larger groups compile in less time and need more memory")
# Builds that a user waits for. GCC looks for memory to free a tenth of the time that a large group takes; without it, 0.9 GB in place of 0.7.
set(TRAFO_SHORT_BUILD OFF)
if(TRAFO_UNITY_SIZE GREATER 8 AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(TRAFO_SHORT_BUILD ON)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

# Precompiled headers: what most files of a target include is parsed once. With OFF every file is
# compiled by what it includes itself, which shows a missing include.
option(TRAFO_PRECOMPILED_HEADERS "Parse the headers that most files include once" ON)

set(TRAFO_STANDARD_HEADERS <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <utility> <vector>)

function(trafo_precompile_headers target)  # further arguments: headers beside those of the standard library
  if(TRAFO_PRECOMPILED_HEADERS)
    foreach(header ${TRAFO_STANDARD_HEADERS} ${ARGN})
      list(APPEND cxx_headers "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
    endforeach()
    target_precompile_headers(${target} PRIVATE ${cxx_headers})
  endif()
endfunction()

function(trafo_reuse_precompiled_headers target from)  # both are compiled with the same options and definitions
  if(TRAFO_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()

# Files without hot loops are compiled with -Os. -O3 takes half as much compile time again, and -O1 makes them half as large again. The
# precompiled header is of another level, so they have none. Not for kernels. Sanitizer builds have one level. Each function has a section,
# so that the linker drops unused ones from libtrafo.so.
set(TRAFO_QUICK_OPTIONS "")
if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3" AND NOT TRAFO_SANITIZE)
  set(TRAFO_QUICK_OPTIONS "$<$<CONFIG:Release>:-Os>;-ffunction-sections")
  if(TRAFO_SHORT_BUILD)  # 6 % of the time and 1 part in 1000 of the size
    list(APPEND TRAFO_QUICK_OPTIONS -fno-tree-pta -fno-schedule-insns2)
  endif()
endif()

function(trafo_compile_quickly)  # files
  if(TRAFO_QUICK_OPTIONS)
    set_source_files_properties(${ARGN} PROPERTIES TRAFO_QUICK ON SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${TRAFO_QUICK_OPTIONS}")
  endif()
endfunction()

# Templates of the standard library, JSON, CLI11 and Google Test take most of the compile time of programs and tests. Files
# compiled together take it once; their file-local names must differ.
option(TRAFO_UNITY_BUILD "Compile files in groups" ON)

# CMake's own UNITY_BUILD writes absolute paths, with which a compiler cache finds nothing again in another clone.
function(trafo_unity_build target)  # a further argument: files in a group
  if(TRAFO_UNITY_BUILD)
    set(size ${TRAFO_UNITY_SIZE})
    if(ARGN)
      set(size ${ARGN})
    endif()
    # when the properties of its files are set
    cmake_language(EVAL CODE "cmake_language(DEFER CALL trafo_group_sources ${target} ${size})")
  endif()
endfunction()

# A file that has separate options, or SKIP_UNITY_BUILD_INCLUSION, stays alone. Files of trafo_compile_quickly have separate groups.
function(trafo_group_sources target size)
  get_target_property(sources ${target} SOURCES)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_groups)
  foreach(name group quick)
    set(${name}_files 0)
    set(${name}_content "")
  endforeach()
  foreach(source ${sources})
    if(NOT source MATCHES "^[^$]*\\.cc$")
      continue()
    endif()
    get_filename_component(source ${source} ABSOLUTE)
    set(name group)
    set(properties SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS)
    get_source_file_property(quick ${source} TRAFO_QUICK)
    if(quick)
      set(name quick)
      list(REMOVE_ITEM properties COMPILE_OPTIONS)
    endif()
    set(alone FALSE)
    foreach(property ${properties})
      get_source_file_property(value ${source} ${property})
      if(value)
        set(alone TRUE)
      endif()
    endforeach()
    if(alone)
      continue()
    endif()
    file(RELATIVE_PATH path ${folder} ${source})
    string(APPEND ${name}_content "#include \"${path}\"\n")
    set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    math(EXPR ${name}_files "${${name}_files} + 1")
    math(EXPR full "${${name}_files} % ${size}")
    if(full EQUAL 0)
      trafo_add_group(${target} ${folder} ${name}_${${name}_files} "${${name}_content}")
      set(${name}_content "")
    endif()
  endforeach()
  foreach(name group quick)
    if(${name}_content)
      trafo_add_group(${target} ${folder} ${name}_${${name}_files} "${${name}_content}")
    endif()
  endforeach()
endfunction()

function(trafo_add_group target folder name content)
  set(file ${folder}/${name}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "${content}" @ONLY)  # written only if it changes
  if(name MATCHES "^quick_")
    trafo_compile_quickly(${file})
  endif()
  target_sources(${target} PRIVATE ${file})
endfunction()

# Kernels that Highway compiles once for every instruction set, in a few groups: half of a small file's time is for Highway's headers, which
# are parsed once for every instruction set, too. A group is such a file itself, and its kernels find foreach_target.h included. Files go into
# the groups round robin, because large files are neighbours in the list. Files with options of their own stay alone, which all have on 64-bit
# ARM with GCC and on WebAssembly. Functions have the instructions that they have in a file alone, but for registers.
set(TRAFO_KERNEL_GROUPS 4)

function(trafo_group_kernels target files)  # those that include foreach_target.h; others stay alone
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_kernel_groups)
  set(count 0)
  foreach(source IN LISTS files)
    file(STRINGS ${source} includes REGEX "foreach_target\\.h")
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(NOT includes OR options OR definitions)
      continue()
    endif()
    file(RELATIVE_PATH path ${folder} ${source})
    math(EXPR group "${count} % ${TRAFO_KERNEL_GROUPS}")
    string(APPEND content_${group} "#include \"${path}\"\n")
    set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    math(EXPR count "${count} + 1")
  endforeach()
  math(EXPR last "${TRAFO_KERNEL_GROUPS} - 1")
  foreach(group RANGE ${last})
    if(content_${group})
      set(name kernels_${group}.cc)
      set(again "#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE \"${name}\"\n")
      set(first "${again}#include \"engine/backend/cpu/simd.h\"\n\n#include \"hwy/foreach_target.h\"\n\n")
      file(CONFIGURE OUTPUT ${folder}/${name} CONTENT "${first}${content_${group}}${again}" @ONLY)
      set_source_files_properties(${folder}/${name} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON INCLUDE_DIRECTORIES ${folder})
      target_sources(${target} PRIVATE ${folder}/${name})
    endif()
  endforeach()
endfunction()

# One by one for who works on the library: a change compiles one file. Mutation tests and coverage need it so, too
# (tests/tools/relink.py turns it off).
set(unity_library OFF)
if(TRAFO_SANITIZE OR NOT TRAFO_BUILD_TESTS)
  set(unity_library ON)
endif()
option(TRAFO_UNITY_LIBRARY "Compile files of the library in groups, too" ${unity_library})

function(trafo_unity_build_of_library target)  # further arguments: files of kernels
  if(TRAFO_UNITY_LIBRARY)
    trafo_unity_build(${target})
    if(TRAFO_UNITY_BUILD AND ARGN)
      cmake_language(EVAL CODE "cmake_language(DEFER CALL trafo_group_kernels ${target} [[${ARGN}]])")
    endif()
  endif()
endfunction()
