# LibTorch and Gloo as the system has them. find_package(Torch) is not used: on wheels it wants
# CUDA; only torch_cpu and c10 are linked, so that one build serves with and without a GPU.
find_path(LOCKSTEP_TORCH_INCLUDE torch/csrc/distributed/c10d/reducer.hpp REQUIRED)
find_library(LOCKSTEP_TORCH_CPU torch_cpu REQUIRED)
find_library(LOCKSTEP_C10 c10 REQUIRED)
find_path(LOCKSTEP_GLOO_INCLUDE gloo/allreduce.h REQUIRED)
find_library(LOCKSTEP_GLOO gloo REQUIRED)

add_library(lockstep_torch INTERFACE)
target_include_directories(lockstep_torch SYSTEM INTERFACE
  ${LOCKSTEP_TORCH_INCLUDE} ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/api/include
  ${LOCKSTEP_GLOO_INCLUDE})
# Without USE_C10D_GLOO, ProcessGroupGloo.hpp is empty.
target_compile_definitions(lockstep_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
target_compile_options(lockstep_torch INTERFACE -Wno-deprecated-declarations)
target_link_libraries(lockstep_torch INTERFACE ${LOCKSTEP_TORCH_CPU} ${LOCKSTEP_C10}
                                               ${LOCKSTEP_GLOO} Threads::Threads)
# Parsed once: of the 6 s that a unit took, 4 went into these headers.
add_library(lockstep_torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep_flags lockstep_torch fmt::fmt)
target_precompile_headers(lockstep_torch_pch PRIVATE
  <ATen/ATen.h> ${lockstep_common_headers})
set_property(TARGET lockstep_torch_pch PROPERTY JOB_POOL_COMPILE torch_units)
# target: all of its units are compiled with the headers above, as many at a time as memory allows.
function(lockstep_torch_units target)
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_pch)
  set_property(TARGET ${target} PROPERTY JOB_POOL_COMPILE torch_units)
endfunction()
# Debian's 1.13.1 lacks a header that reducer.hpp includes: a stub stands in where it is absent.
if(NOT EXISTS ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/distributed/autograd/context/context.h)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/reducer/c10d/stub)
endif()
