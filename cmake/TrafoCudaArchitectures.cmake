# Which compute capabilities libtrafo_cuda.so gets machine code for. A card without machine code compiles the PTX when it is first
# used, which takes minutes, and has no kernels made for it.

# Of a release: A100, RTX 30, RTX 40 and L4, H100, B200, RTX 50. 8.7 runs the code for 8.6.
set(TRAFO_CUDA_RELEASE_ARCHITECTURES 80 86 89 90a 100 120)
# Where native finds no card.
set(TRAFO_CUDA_FALLBACK_ARCHITECTURES 80 90a)

# The cards of this machine, each kind once, as nvcc names them: 86, 90a. Empty without a card or without nvidia-smi.
function(trafo_cuda_cards_here result)
  set(found "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE lines ERROR_QUIET RESULT_VARIABLE failed)
  if(failed STREQUAL "0")
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${lines}")
    foreach(capability ${capabilities})
      if(capability VERSION_LESS 8.0)  # it may be there for a screen
        message(STATUS "CUDA plugin: nothing is built for the card of compute capability ${capability}, 8.0 is the least")
        continue()
      endif()
      string(REPLACE "." "" architecture ${capability})
      if(architecture STREQUAL "90")  # with the instructions that no other card has
        set(architecture 90a)
      endif()
      list(APPEND found ${architecture})
    endforeach()
    list(REMOVE_DUPLICATES found)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# `wanted`: native, release or a list; `ptx`: auto, a compute capability or empty. Into `architectures` a list, into `ptx_result` one
# or none.
function(trafo_cuda_architectures wanted ptx architectures ptx_result)
  set(found "")
  if(wanted STREQUAL "release")
    set(list ${TRAFO_CUDA_RELEASE_ARCHITECTURES})
  elseif(wanted STREQUAL "native")
    trafo_cuda_cards_here(found)
    set(list ${found})
    if(NOT found)
      set(list ${TRAFO_CUDA_FALLBACK_ARCHITECTURES})
    endif()
  else()
    set(list ${wanted})
    if(NOT list)
      message(FATAL_ERROR "TRAFO_CUDA_ARCHITECTURES is empty; it wants native, release or a list such as 80;90a")
    endif()
    foreach(architecture ${list})
      if(NOT architecture MATCHES "^[0-9]+[af]?$")
        message(FATAL_ERROR "TRAFO_CUDA_ARCHITECTURES: wants native, release or a list such as 80;90a, got '${wanted}'")
      endif()
    endforeach()
  endif()
  if(ptx STREQUAL "auto")
    set(ptx 90)
    if(found)
      set(ptx "")
    endif()
  elseif(NOT ptx MATCHES "^([0-9]+)?$")
    message(FATAL_ERROR "TRAFO_CUDA_PTX: wants auto, a number such as 90, or nothing, got '${ptx}'")
  endif()
  set(${architectures} "${list}" PARENT_SCOPE)
  set(${ptx_result} "${ptx}" PARENT_SCOPE)
endfunction()
