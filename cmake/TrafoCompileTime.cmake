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

function(trafo_unity_build target)
  if(TRAFO_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# Mutation tests and coverage compile single files of the library again, so a release build with tests compiles them one by one.
function(trafo_unity_build_of_library target)
  if(TRAFO_SANITIZE OR NOT TRAFO_BUILD_TESTS)
    trafo_unity_build(${target})
  endif()
endfunction()
