# Libraries that the engine needs: Debian 12's (scripts/install-dependencies.sh installs them), or sources that are built here and linked
# statically. A source archive and the package trafo-sys have them in third_party/.
set(third_party "")
if(EXISTS ${PROJECT_SOURCE_DIR}/third_party/complete)
  set(third_party ${PROJECT_SOURCE_DIR}/third_party)
endif()
set(TRAFO_THIRD_PARTY "${third_party}" CACHE PATH "Folder of scripts/third-party.sh; empty: libraries of the system")
find_package(Threads REQUIRED)
set(TRAFO_SYSTEM_LIBRARIES Threads::Threads ${CMAKE_DL_LIBS})
if(WIN32)
  list(APPEND TRAFO_SYSTEM_LIBRARIES bcrypt)  # random bytes
endif()
if(TRAFO_THIRD_PARTY)
  include(TrafoThirdParty)
  return()
endif()
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
set(TRAFO_ENGINE_DEPENDENCIES
  PkgConfig::sentencepiece PkgConfig::hwy ZLIB::ZLIB nlohmann_json::nlohmann_json ${TRAFO_SYSTEM_LIBRARIES})
