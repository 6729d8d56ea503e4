# The software bill of materials, trafo.cdx.json: target `sbom`, part of the default build, installed with the library. Needs Python 3.11;
# without it no bill is made.
find_package(Python3 3.11 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND)
  message(STATUS "sbom: no Python 3.11, trafo.cdx.json is not made")
  return()
endif()
set(TRAFO_SBOM ${PROJECT_BINARY_DIR}/trafo.cdx.json)
set(static_libraries "")
if(TRAFO_THIRD_PARTY)
  set(static_libraries ${TRAFO_THIRD_PARTY}/third-party.txt)
endif()
set(TRAFO_SBOM_STATIC "${static_libraries}" CACHE FILEPATH "Names what is linked statically: scripts/portable/files.txt, scripts/third-party.txt")
set(TRAFO_SBOM_OF trafo)
foreach(target translate-train trafo_mpi trafo_tcp)
  if(TARGET ${target})
    list(APPEND TRAFO_SBOM_OF ${target})
  endif()
endforeach()
add_custom_command(OUTPUT ${TRAFO_SBOM}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/sbom.py ${PROJECT_BINARY_DIR} ${PROJECT_VERSION} ${TRAFO_SBOM} ${TRAFO_SBOM_STATIC}
  DEPENDS ${TRAFO_SBOM_OF} ${PROJECT_SOURCE_DIR}/scripts/sbom.py ${PROJECT_SOURCE_DIR}/scripts/cuda-toolkit.txt
    ${PROJECT_SOURCE_DIR}/bindings/rust/Cargo.lock ${PROJECT_SOURCE_DIR}/bindings/go/trafo/go.mod
  VERBATIM)
add_custom_target(sbom ALL DEPENDS ${TRAFO_SBOM})
include(GNUInstallDirs)
# Optional: who builds and installs the library target alone has none.
install(FILES ${TRAFO_SBOM} DESTINATION ${CMAKE_INSTALL_DATADIR}/trafo COMPONENT library OPTIONAL)
