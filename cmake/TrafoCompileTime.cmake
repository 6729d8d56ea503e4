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

# Templates of the standard library, JSON, CLI11 and Google Test take most of the compile time of programs and tests. Eight files
# compiled together take it once; their file-local names must differ.
option(TRAFO_UNITY_BUILD "Compile files in groups of eight" ON)

# CMake's own UNITY_BUILD writes absolute paths, with which a compiler cache finds nothing again in another clone.
function(trafo_unity_build target)
  if(TRAFO_UNITY_BUILD)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL trafo_group_sources ${target})")  # when the properties of its files are set
  endif()
endfunction()

# A file that has options of its own, or SKIP_UNITY_BUILD_INCLUSION, stays alone.
function(trafo_group_sources target)
  get_target_property(sources ${target} SOURCES)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_groups)
  set(files 0)
  set(group "")
  foreach(source ${sources})
    if(NOT source MATCHES "^[^$]*\\.cc$")
      continue()
    endif()
    get_filename_component(source ${source} ABSOLUTE)
    set(alone FALSE)
    foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(alone TRUE)
      endif()
    endforeach()
    if(alone)
      continue()
    endif()
    file(RELATIVE_PATH path ${folder} ${source})
    string(APPEND group "#include \"${path}\"\n")
    set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    math(EXPR files "${files} + 1")
    math(EXPR full "${files} % 8")
    if(full EQUAL 0)
      trafo_add_group(${target} ${folder} ${files} "${group}")
      set(group "")
    endif()
  endforeach()
  if(group)
    trafo_add_group(${target} ${folder} ${files} "${group}")
  endif()
endfunction()

function(trafo_add_group target folder number content)
  file(CONFIGURE OUTPUT ${folder}/group_${number}.cc CONTENT "${content}" @ONLY)  # written only if it changes
  target_sources(${target} PRIVATE ${folder}/group_${number}.cc)
endfunction()

# One by one for who works on the library: a change compiles one file. Mutation tests and coverage need it so, too
# (tests/tools/relink.py turns it off).
set(unity_library OFF)
if(TRAFO_SANITIZE OR NOT TRAFO_BUILD_TESTS)
  set(unity_library ON)
endif()
option(TRAFO_UNITY_LIBRARY "Compile files of the library in groups, too" ${unity_library})

function(trafo_unity_build_of_library target)
  if(TRAFO_UNITY_LIBRARY)
    trafo_unity_build(${target})
  endif()
endfunction()
