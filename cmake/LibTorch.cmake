include(cmake/LockstepTorch.cmake)
include(cmake/Gloo.cmake)

# Parsed once: of the 6 s that a unit took, 4 went into these headers.
add_library(lockstep_torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep_flags lockstep::torch ${lockstep_fmt})
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
  target_include_directories(lockstep::torch SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/reducer/c10d/stub)
endif()

# Programs that link LibTorch: found again where they are installed, and without a mix of Gloos.
if(LOCKSTEP_TORCH)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()
function(lockstep_torch_program target)
  lockstep_names_in_stacks(${target})
  if(NOT LOCKSTEP_TORCH_LOADS_GLOO)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -D NM=${CMAKE_NM}
                       -D PROGRAM=$<TARGET_FILE:${target}> -P ${PROJECT_SOURCE_DIR}/cmake/CheckGloo.cmake)
  endif()
endfunction()
