# Flags every target shares: warnings, sanitizers, and floating point that means what the source says (no contraction
# across statements that would differ between compilers of one machine is left to the SIMD code's explicit MulAdd).
add_library(trafo_warnings INTERFACE)
target_compile_options(trafo_warnings INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wno-unknown-pragmas
  $<$<BOOL:${TRAFO_WERROR}>:-Werror>
  -ffp-contract=off)
if(TRAFO_SANITIZE)
  target_compile_options(trafo_warnings INTERFACE -fsanitize=${TRAFO_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(trafo_warnings INTERFACE -fsanitize=${TRAFO_SANITIZE})
  if(TRAFO_SANITIZE MATCHES undefined)
    target_compile_options(trafo_warnings INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
# Highway targets: the baseline, AVX2 and AVX-512 ("AVX3"); more would only cost build time. 1<<N are Highway's own
# bits, which CMake cannot see, so the list of disabled names lives in engine/backend/cpu/simd.h.
