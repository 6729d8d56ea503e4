# Files that `cmake --install` gives other projects: libraries, headers, find_package(trafo) and pkg-config's trafo.pc. Every path is
# relative to where it lies, so that an installed tree may be moved, or installed under another --prefix. Components: `library` is what
# programs need at run time, `development` what compilers need, `program` translate-train. `cuda` and `mpi` are the plugins, in no package:
# each is for the libraries of the machine that it is built on.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(TRAFO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/trafo)

install(TARGETS trafo EXPORT trafoTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT library  # trafo.dll
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS trafo_static EXPORT trafoStaticTargets COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/capi/include/*.h)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/capi/include/trafo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT trafoTargets NAMESPACE trafo:: DESTINATION ${TRAFO_CMAKE_DIR} COMPONENT development)
install(EXPORT trafoStaticTargets NAMESPACE trafo:: DESTINATION ${TRAFO_CMAKE_DIR} COMPONENT development)

set(TRAFO_CONFIG_BUNDLED FALSE)
if(TRAFO_THIRD_PARTY)
  set(TRAFO_CONFIG_BUNDLED TRUE)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/trafoConfig.cmake.in ${PROJECT_BINARY_DIR}/trafoConfig.cmake
  INSTALL_DESTINATION ${TRAFO_CMAKE_DIR})
# Before 1.0 the ABI may change with a minor version.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/trafoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/trafoConfig.cmake ${PROJECT_BINARY_DIR}/trafoConfigVersion.cmake
  DESTINATION ${TRAFO_CMAKE_DIR} COMPONENT development)

# Not Requires.private: pkg-config would ask for the packages of the static library where only the shared one is linked.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(TRAFO_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(TRAFO_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  string(REGEX REPLACE "/$" "" up ${up})
  set(TRAFO_PC_PREFIX "\${pcfiledir}/${up}")
  set(TRAFO_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(TRAFO_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(TRAFO_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
set(TRAFO_PC_PRIVATE "-l${TRAFO_CXX_LIBRARY} -lpthread -ldl -lm")
if(WIN32)
  set(TRAFO_PC_PRIVATE "-lstdc++ -lpthread -lbcrypt -lm")
endif()
if(NOT TRAFO_THIRD_PARTY)
  list(JOIN sentencepiece_LDFLAGS " " sentencepiece_flags)
  list(JOIN hwy_LDFLAGS " " hwy_flags)
  string(PREPEND TRAFO_PC_PRIVATE "${sentencepiece_flags} ${hwy_flags} -lz ")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/trafo.pc.in ${PROJECT_BINARY_DIR}/trafo.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trafo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
