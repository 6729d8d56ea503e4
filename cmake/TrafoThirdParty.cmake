# SentencePiece, Highway, zlib and nlohmann-json from the folder of scripts/third-party.sh. The libraries are static; libtrafo.a contains
# their objects, so a program that links it needs no other library but those of C and C++.
if(NOT EXISTS ${TRAFO_THIRD_PARTY}/complete)
  message(FATAL_ERROR "TRAFO_THIRD_PARTY is ${TRAFO_THIRD_PARTY}, which is no folder of scripts/third-party.sh")
endif()
# Their warnings are for their authors. -O3 takes a third more time here and makes nothing faster that a program waits for.
set(TRAFO_THIRD_PARTY_OPTIONS -w -ffunction-sections $<$<CONFIG:Release>:-O2>)

# SentencePiece in three files: its 50 take four times as long one by one, for they all parse the same headers.
set(folder ${PROJECT_BINARY_DIR}/trafo_third_party)
foreach(group library training protobuf)
  set(patterns src/*.cc src/builtin_pb/*.cc third_party/absl/*.cc)
  if(group STREQUAL protobuf)
    set(patterns third_party/protobuf-lite/*.cc)
  endif()
  list(TRANSFORM patterns PREPEND ${TRAFO_THIRD_PARTY}/sentencepiece/)
  file(GLOB_RECURSE sources RELATIVE ${TRAFO_THIRD_PARTY}/sentencepiece ${patterns})
  list(REMOVE_DUPLICATES sources)
  set(for_training "src/(.*_trainer|trainer_.*|builder|pretokenizer_for_training|unicode_script)\\.cc$")
  if(group STREQUAL training)
    list(FILTER sources INCLUDE REGEX ${for_training})
  elseif(group STREQUAL library)
    list(FILTER sources EXCLUDE REGEX ${for_training})
  endif()
  set(content "")
  foreach(source ${sources})
    # A file of protobuf leaves macros behind that the next one may not find.
    string(APPEND content "#include \"${source}\"\n#ifdef PROTOBUF_NAMESPACE\n#include <google/protobuf/port_undef.inc>\n#endif\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/sentencepiece_${group}.cc CONTENT "${content}" @ONLY)
  list(APPEND sentencepiece_files ${folder}/sentencepiece_${group}.cc)
endforeach()
add_library(trafo_sentencepiece STATIC ${sentencepiece_files})
target_include_directories(trafo_sentencepiece PRIVATE ${TRAFO_THIRD_PARTY}/sentencepiece ${TRAFO_THIRD_PARTY}/sentencepiece/src
  ${TRAFO_THIRD_PARTY}/sentencepiece/src/builtin_pb ${TRAFO_THIRD_PARTY}/sentencepiece/third_party
  ${TRAFO_THIRD_PARTY}/sentencepiece/third_party/protobuf-lite)
target_include_directories(trafo_sentencepiece SYSTEM PUBLIC ${TRAFO_THIRD_PARTY}/sentencepiece/include)
target_compile_definitions(trafo_sentencepiece PRIVATE HAVE_PTHREAD=1 _USE_INTERNAL_STRING_VIEW)
target_link_libraries(trafo_sentencepiece PRIVATE Threads::Threads)
set_target_properties(trafo_sentencepiece PROPERTIES CXX_STANDARD 17)

add_library(trafo_highway STATIC ${TRAFO_THIRD_PARTY}/highway/hwy/aligned_allocator.cc ${TRAFO_THIRD_PARTY}/highway/hwy/targets.cc)
target_include_directories(trafo_highway SYSTEM PUBLIC ${TRAFO_THIRD_PARTY}/highway)

file(GLOB sources ${TRAFO_THIRD_PARTY}/zlib/*.c)
add_library(trafo_zlib STATIC ${sources})
target_include_directories(trafo_zlib PRIVATE ${TRAFO_THIRD_PARTY}/zlib)
target_include_directories(trafo_zlib SYSTEM PUBLIC ${TRAFO_THIRD_PARTY}/zlib/include)
target_compile_definitions(trafo_zlib PRIVATE HAVE_UNISTD_H _LARGEFILE64_SOURCE=1)

add_library(trafo_json INTERFACE)
target_include_directories(trafo_json SYSTEM INTERFACE ${TRAFO_THIRD_PARTY}/nlohmann-json3/single_include)

set(TRAFO_THIRD_PARTY_LIBRARIES trafo_sentencepiece trafo_highway trafo_zlib)
foreach(library ${TRAFO_THIRD_PARTY_LIBRARIES})
  target_compile_options(${library} PRIVATE ${TRAFO_THIRD_PARTY_OPTIONS})
endforeach()
set(TRAFO_ENGINE_DEPENDENCIES ${TRAFO_THIRD_PARTY_LIBRARIES} trafo_json Threads::Threads ${CMAKE_DL_LIBS})
