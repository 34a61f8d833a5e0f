# lockstep-nccl.so, ProcessGroupNCCL as a module that is loaded on demand: where LibTorch has CUDA and the
# headers of NCCL and CUDA are there, in the wheel's own packages or the system's.
get_filename_component(torch_lib ${LOCKSTEP_TORCH_CPU} DIRECTORY)
set(packages ${torch_lib}/../../nvidia)  # beside a wheel's folder torch
file(GLOB cuda_packages ${packages}/cu1*/include ${packages}/cuda_runtime/include)
# Found anew each time: another LibTorch may have come.
foreach(found LOCKSTEP_TORCH_CUDA LOCKSTEP_C10_CUDA LOCKSTEP_NCCL_INCLUDE LOCKSTEP_CUDA_INCLUDE)
  unset(${found} CACHE)
endforeach()
find_library(LOCKSTEP_TORCH_CUDA torch_cuda PATHS ${torch_lib} NO_DEFAULT_PATH)
find_library(LOCKSTEP_C10_CUDA c10_cuda PATHS ${torch_lib} NO_DEFAULT_PATH)
find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${packages}/nccl/include PATHS /usr/local/cuda/include)
find_path(LOCKSTEP_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_packages} PATHS /usr/local/cuda/include)
if(LOCKSTEP_TORCH_CUDA AND LOCKSTEP_C10_CUDA AND LOCKSTEP_NCCL_INCLUDE AND LOCKSTEP_CUDA_INCLUDE)
  add_library(lockstep-nccl MODULE reducer/nccl/module/nccl_module.cc)
  set_target_properties(lockstep-nccl PROPERTIES PREFIX "" UNITY_BUILD OFF
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  target_include_directories(lockstep-nccl PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(lockstep-nccl SYSTEM PRIVATE ${LOCKSTEP_NCCL_INCLUDE} ${LOCKSTEP_CUDA_INCLUDE})
  target_compile_definitions(lockstep-nccl PRIVATE USE_C10D_NCCL)
  # Of what libtorch_cuda.so itself asks for, only those who load it need anything.
  target_link_options(lockstep-nccl PRIVATE -Wl,--allow-shlib-undefined)
  target_link_libraries(lockstep-nccl PRIVATE lockstep::torch ${LOCKSTEP_TORCH_CUDA} ${LOCKSTEP_C10_CUDA})
  message(STATUS "Communicator nccl: ${LOCKSTEP_NCCL_INCLUDE}/nccl.h")
else()
  message(STATUS "Communicator nccl: not built (LibTorch has no CUDA, or no headers of NCCL and CUDA were found)")
endif()
