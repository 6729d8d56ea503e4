# Toolchain of the preset `wasm`: Debian's Emscripten, with threads, exceptions and vectors of 128 bits.
find_program(TRAFO_EMCC emcc REQUIRED)
get_filename_component(emscripten ${TRAFO_EMCC} REALPATH)
get_filename_component(emscripten ${emscripten} DIRECTORY)
if(NOT EXISTS ${emscripten}/cmake/Modules/Platform/Emscripten.cmake)
  set(emscripten /usr/share/emscripten)
endif()
include(${emscripten}/cmake/Modules/Platform/Emscripten.cmake)
# Size counts: a page loads it. Kernels are compiled for speed.
set(CMAKE_C_FLAGS_RELEASE "-Os -DNDEBUG" CACHE STRING "Flags of the build type Release")
set(CMAKE_CXX_FLAGS_RELEASE "-Os -DNDEBUG" CACHE STRING "Flags of the build type Release")
# Exceptions of JavaScript, which cost speed: those of WebAssembly (-fwasm-exceptions) do not work with threads in Emscripten 3.1.6.
set(flags "-pthread -fexceptions -msimd128")
set(CMAKE_C_FLAGS_INIT ${flags})
set(CMAKE_CXX_FLAGS_INIT ${flags})
