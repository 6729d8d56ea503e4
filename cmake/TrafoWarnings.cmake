# Flags every target shares: warnings, sanitizers, and floating point that means what the source says: the compiler contracts
# nothing, the SIMD code says MulAdd where it wants one.
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
    # Checks of pointers take a third of the time to compile tests. The library has them, and the address sanitizer sees what a wrong pointer
    # of a test does.
    target_compile_options(trafo_warnings INTERFACE
      $<$<BOOL:$<TARGET_PROPERTY:TRAFO_TEST_PROGRAM>>:-fno-sanitize=null,alignment,object-size,vptr>)
  endif()
endif()
