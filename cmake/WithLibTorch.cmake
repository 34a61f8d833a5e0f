# Libraries and the worker that need LibTorch.
function(lockstep_torch_library name)
  lockstep_library(${name} TORCH ${ARGN})
  target_link_libraries(${name} PUBLIC lockstep::torch)
  lockstep_torch_units(${name})
endfunction()

lockstep_torch_library(lockstep_workloads FOLDERS scenarios/workloads LINK lockstep_scenario)
lockstep_torch_library(lockstep_reducer FOLDERS reducer/comm reducer/device reducer/gloo reducer/c10d
                       reducer/nccl reducer/local reducer/shm reducer/hierarchical reducer/base reducer/kinds reducer/hooks LINK lockstep_bucket)
# Its loops are worth vectorizing, which -O2 does not do where the length is not known.
set_source_files_properties(${PROJECT_SOURCE_DIR}/reducer/local/sum_ranges.cc PROPERTIES
                            COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
# Debian's Gloo of 2022 lacks a header that its own headers include.
set(guarded ${PROJECT_SOURCE_DIR}/reducer/gloo/guarded_device.cc)
set_source_files_properties(${guarded} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(LOCKSTEP_TORCH_LOADS_GLOO)
  find_file(LOCKSTEP_GLOO_MEMORY gloo/common/memory.h)
  if(NOT LOCKSTEP_GLOO_MEMORY)
    set_source_files_properties(${guarded} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/reducer/gloo/stub)
  endif()
endif()
lockstep_torch_library(lockstep_golden
                       SOURCES golden/state.cc golden/golden_run.cc golden/power_sgd.cc golden/replay.cc
                               golden/replay_buckets.cc golden/statistics.cc
                       LINK lockstep_compare lockstep_workloads)
set(of_tools "")
set(engines "")
if(LOCKSTEP_TOOLS)
  set(of_tools sim/tools/collective/worker sim/tools/explore/worker)
  set(engines lockstep_collective lockstep_explore)
  set_source_files_properties(sim/worker/main/tasks.cc PROPERTIES COMPILE_DEFINITIONS LOCKSTEP_TOOLS)
endif()
lockstep_torch_library(lockstep_worker_lib FOLDERS sim/worker sim/worker/main sim/fault ${of_tools}
                       LINK lockstep_launch lockstep_fault ${engines} lockstep_reducer lockstep_golden)

# It hands tensors to others: of LibTorch, Gloo and xxHash.
if(NOT LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_worker_lib PRIVATE $<$<CONFIG:Release>:-O1>)
endif()

# As LibTorch was built: without NDEBUG its headers look for a record that its library never makes.
set_source_files_properties(${PROJECT_SOURCE_DIR}/sim/worker/profile.cc PROPERTIES
                            COMPILE_DEFINITIONS NDEBUG SKIP_PRECOMPILE_HEADERS ON)

# Program and worker in one, for mains of one's own.
lockstep_torch_library(lockstep_main FOLDERS sim/main LINK lockstep_program lockstep_worker_lib)
target_link_options(lockstep_main INTERFACE ${lockstep_stack_names})

set(LOCKSTEP_WORKER_SOURCES "" CACHE STRING "More sources of the worker: models, data sets, reducers and comm hooks of one's own")
add_executable(lockstep-worker sim/worker/main/main.cc reducer/hooks/examples/divide_after.cc
                               reducer/hooks/examples/fresh_average.cc
                               ${LOCKSTEP_WORKER_SOURCES})
target_link_libraries(lockstep-worker PRIVATE lockstep_worker_lib)
set_target_properties(lockstep-worker PROPERTIES UNITY_BUILD OFF)
lockstep_torch_program(lockstep-worker)
include(cmake/Nccl.cmake)
