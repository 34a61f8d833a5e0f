# Target lockstep::torch: LibTorch and Gloo as this build has them. Installed beside the package's
# config file too, so that who links lockstep finds the same ones. find_package(Torch) is not used: on
# wheels it wants CUDA; only torch_cpu and c10 are linked, so that one build serves with and without
# a GPU.
set(LOCKSTEP_TORCH "" CACHE PATH
    "A wheel's folder torch, an unpacked LibTorch or a build of one; empty: the system's")

if(NOT "${LOCKSTEP_TORCH}" STREQUAL "${LOCKSTEP_TORCH_LAST}")  # found anew for another one
  unset(LOCKSTEP_TORCH_INCLUDE CACHE)
  unset(LOCKSTEP_TORCH_CPU CACHE)
  unset(LOCKSTEP_C10 CACHE)
  unset(LOCKSTEP_TORCH_LOADS_GLOO CACHE)
  set(LOCKSTEP_TORCH_LAST "${LOCKSTEP_TORCH}" CACHE INTERNAL "")
endif()
set(in_include "")
set(in_lib "")
if(LOCKSTEP_TORCH)
  get_filename_component(torch_root "${LOCKSTEP_TORCH}" ABSOLUTE)
  if(EXISTS ${torch_root}/torch/lib/libtorch_cpu.so)  # the folder that a wheel is unpacked in
    set(torch_root ${torch_root}/torch)
  endif()
  if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LOCKSTEP_TORCH: there is no lib/libtorch_cpu.so in ${torch_root}: the folder "
                        "torch of a wheel or virtual environment, or a LibTorch, is wanted")
  endif()
  set(in_include PATHS ${torch_root}/include NO_DEFAULT_PATH)
  set(in_lib PATHS ${torch_root}/lib NO_DEFAULT_PATH)
endif()
find_path(LOCKSTEP_TORCH_INCLUDE torch/csrc/distributed/c10d/reducer.hpp ${in_include} REQUIRED)
find_library(LOCKSTEP_TORCH_CPU torch_cpu ${in_lib} REQUIRED)
find_library(LOCKSTEP_C10 c10 ${in_lib} REQUIRED)

# Debian's LibTorch loads the shared Gloo. Others have one inside, whose headers nobody ships.
if(NOT DEFINED LOCKSTEP_TORCH_LOADS_GLOO)
  find_program(LOCKSTEP_READELF readelf REQUIRED)
  execute_process(COMMAND ${LOCKSTEP_READELF} -d ${LOCKSTEP_TORCH_CPU} OUTPUT_VARIABLE dynamic
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "NEEDED[^\n]*libgloo" loads "${dynamic}")
  set(LOCKSTEP_TORCH_LOADS_GLOO "${loads}" CACHE INTERNAL "")
endif()

add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
# Wheels bring headers of fmt along, of another version than ours.
if(EXISTS ${LOCKSTEP_TORCH_INCLUDE}/fmt)
  get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  list(GET fmt_include 0 fmt_include)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/own_fmt)
  file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/own_fmt/fmt SYMBOLIC)
  target_include_directories(lockstep::torch INTERFACE ${CMAKE_BINARY_DIR}/own_fmt)
endif()
target_include_directories(lockstep::torch INTERFACE
  ${LOCKSTEP_TORCH_INCLUDE} ${LOCKSTEP_TORCH_INCLUDE}/torch/csrc/api/include)
# Without USE_C10D_GLOO, ProcessGroupGloo.hpp is empty.
target_compile_definitions(lockstep::torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
target_compile_options(lockstep::torch INTERFACE -Wno-deprecated-declarations)
if(LOCKSTEP_TORCH_LOADS_GLOO)
  find_path(LOCKSTEP_GLOO_INCLUDE gloo/allreduce.h REQUIRED)
  find_library(LOCKSTEP_GLOO_LIBRARY gloo REQUIRED)
  target_include_directories(lockstep::torch INTERFACE ${LOCKSTEP_GLOO_INCLUDE})
  target_link_libraries(lockstep::torch INTERFACE ${LOCKSTEP_GLOO_LIBRARY})
else()
  target_link_libraries(lockstep::torch INTERFACE lockstep::gloo)  # cmake/Gloo.cmake
endif()
target_link_libraries(lockstep::torch INTERFACE ${LOCKSTEP_TORCH_CPU} ${LOCKSTEP_C10}
                                                Threads::Threads)
