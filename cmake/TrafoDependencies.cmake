# Debian 12 packages; scripts/install-dependencies.sh installs them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
set(TRAFO_ENGINE_DEPENDENCIES
  PkgConfig::sentencepiece PkgConfig::hwy ZLIB::ZLIB nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})
