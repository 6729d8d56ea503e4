# Packages that `cpack` makes (scripts/package.sh): trafo_*.deb (library and translate-train), trafo-dev_*.deb (headers, static library,
# files for CMake and pkg-config) and a tar of both, which also has the libraries that they need, but for glibc and the run-time
# libraries of GCC.
include(GNUInstallDirs)
if(NOT TARGET translate-train)
  return()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/trafo RENAME copyright COMPONENT library)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/trafo-dev RENAME copyright COMPONENT development)

# Component `bundled`, of the tar alone. Libraries that stay out belong to the system: glibc, and libstdc++ and libgcc, of which the newest
# serves all.
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \"$<TARGET_FILE:translate-train>\" LIBRARIES \"$<TARGET_FILE:trafo>\"
    RESOLVED_DEPENDENCIES_VAR needed CONFLICTING_DEPENDENCIES_PREFIX conflicting
    PRE_EXCLUDE_REGEXES \"^(libc|libm|libdl|libpthread|librt|libstdc\\\\+\\\\+|libgcc_s|libtrafo|ld-linux.*)\\\\.so\")
  foreach(file IN LISTS needed)
    file(INSTALL \${file} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\" FOLLOW_SYMLINK_CHAIN)
  endforeach()" COMPONENT bundled EXCLUDE_FROM_ALL)

string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" system)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME trafo)
set(CPACK_PACKAGE_VENDOR "The Trafo authors")
set(CPACK_PACKAGE_CONTACT "The Trafo authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains, fine-tunes and runs transformers inside other programs")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGE_FILE_NAME trafo-${PROJECT_VERSION}-${system})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 1)  # more of them compress a file into other bytes
set(CPACK_COMPONENTS_ALL library program development)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/TrafoArchivesByKind.cmake)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # and calls of ldconfig
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME trafo)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME trafo-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "trafo (= ${PROJECT_VERSION})")
# The static library needs them, and find_package and the crates look for it first.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "libsentencepiece-dev, libhwy-dev, zlib1g-dev, pkg-config")

include(CPack)
cpack_add_component_group(runtime DESCRIPTION "The shared library libtrafo and the trainer translate-train")
cpack_add_component_group(development DESCRIPTION "Headers, static library, files for CMake and pkg-config of Trafo")
cpack_add_component(library GROUP runtime)
cpack_add_component(program GROUP runtime)
cpack_add_component(development GROUP development)
cpack_add_component(bundled GROUP runtime)
