# TRAFO_KERNEL_ABI: a hash of every header that engine and CUDA plugin must share, so that two builds that differ refuse each other.
file(GLOB TRAFO_KERNEL_HEADERS CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/engine/ops/op_list.def ${PROJECT_SOURCE_DIR}/engine/ops/*/*.h
  ${PROJECT_SOURCE_DIR}/engine/optim/update.h ${PROJECT_SOURCE_DIR}/engine/optim/*/*_rule.h
  ${PROJECT_SOURCE_DIR}/engine/optim/generated/optimizers.def ${PROJECT_SOURCE_DIR}/engine/quant/state_code.h
  ${PROJECT_SOURCE_DIR}/engine/backend/backend.h ${PROJECT_SOURCE_DIR}/engine/backend/stream_device.h
  ${PROJECT_SOURCE_DIR}/engine/backend/gemm_tuner.h ${PROJECT_SOURCE_DIR}/engine/backend/side_stream.h
  ${PROJECT_SOURCE_DIR}/engine/backend/cuda/plugin_api.h ${PROJECT_SOURCE_DIR}/engine/backend/cuda/nccl_api.h
  ${PROJECT_SOURCE_DIR}/engine/backend/cuda/link_api.h ${PROJECT_SOURCE_DIR}/engine/backend/cuda/copy_api.h
  ${PROJECT_SOURCE_DIR}/engine/backend/cuda/priority_api.h
  ${PROJECT_SOURCE_DIR}/engine/backend/cuda/cards.h
  ${PROJECT_SOURCE_DIR}/engine/core/dtype.h ${PROJECT_SOURCE_DIR}/engine/core/numeric/philox.h)
list(SORT TRAFO_KERNEL_HEADERS)
set(all_hashes "")
foreach(header ${TRAFO_KERNEL_HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND all_hashes ${hash})
endforeach()
string(SHA256 TRAFO_KERNEL_ABI "${all_hashes}")
string(SUBSTRING ${TRAFO_KERNEL_ABI} 0 16 TRAFO_KERNEL_ABI)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TRAFO_KERNEL_HEADERS})
set_source_files_properties(${PROJECT_SOURCE_DIR}/engine/backend/cuda/cuda_backend.cc
  PROPERTIES COMPILE_DEFINITIONS "TRAFO_KERNEL_ABI=\"${TRAFO_KERNEL_ABI}\"")
