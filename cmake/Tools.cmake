# Compiler cache, warnings, sanitizers, and a job pool sized by memory.
find_program(CCACHE ccache)
if(CCACHE)
  # Without the sloppiness ccache lets nothing through that uses a precompiled header. A second clone
  # finds what the first has built.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1
                                  CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
# Paths of this tree neither in messages nor in what the compiler cache compares.
target_compile_options(lockstep_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(LOCKSTEP_SANITIZE)
  # -O0: with both sanitizers g++ takes minutes for a unit at -O2, and twice as long at -O1. What a
  # fuzzer does a million times is worth -O1, and tests lose what compiling would gain.
  set(level -O0)
  if(LOCKSTEP_FUZZ)
    set(level $<IF:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_QUICKLY_BUILT>>,-O0,-O1>)  # of who links these flags
  endif()
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -g1 ${level}
                                                  -fno-sanitize-recover=all)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND LOCKSTEP_SANITIZE MATCHES address)
    target_compile_definitions(lockstep_flags INTERFACE __SANITIZE_ADDRESS__)  # as g++ says it
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # g++ 12 warns wrongly in the library's own <regex> once it is instrumented.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/scenarios/parse/validator.cc
                                PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
  endif()
endif()
if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "LOCKSTEP_FUZZ wants -DCMAKE_CXX_COMPILER=clang++")
  endif()
  # Only what a fuzzer links tells it where an input went; programs without one ignore that. Left out
  # is what costs a third of the compiler's time and what ASan sees as well; and the report of every
  # comparison, half of all time of readers whose words stand in dictionaries anyway.
  target_compile_options(lockstep_flags INTERFACE -fsanitize=fuzzer-no-link
                                                  -fno-sanitize-coverage=trace-cmp,stack-depth
                                                  -fno-sanitize=null,object-size,vptr)
  target_link_options(lockstep_flags INTERFACE -fsanitize=fuzzer-no-link)
  find_program(LLD ld.lld)
  if(LLD)  # sixty programs of up to 120 MB: 0.8 s of a core for each instead of 4
    target_link_options(lockstep_flags INTERFACE -fuse-ld=lld)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # A precompiled header that is the same whenever it was made: else the cache never finds its users.
  target_compile_options(lockstep_flags INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()
# Where compiling counts more than running.
target_compile_options(lockstep_flags INTERFACE $<$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_UNOPTIMIZED>>:-O0>)

# A unit with LibTorch's headers takes 1.3 GB at most; count 1.6 GB a job.
cmake_host_system_information(RESULT memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR torch_jobs "${memory_mb} / 1600")
if(torch_jobs GREATER cores)
  set(torch_jobs ${cores})
endif()
if(torch_jobs LESS 1)
  set(torch_jobs 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS torch_units=${torch_jobs})

# Our own functions have names in the stacks that a worker writes. No others: what a program exports
# takes the place of the same name in the libraries that it loads.
set(lockstep_stack_names "LINKER:--export-dynamic-symbol=_ZN8lockstep*"
                         "LINKER:--export-dynamic-symbol=_ZNK8lockstep*")
function(lockstep_names_in_stacks target)
  target_link_options(${target} PRIVATE ${lockstep_stack_names})
endfunction()
