find_package(GTest REQUIRED)
find_library(LOCKSTEP_RAPIDCHECK rapidcheck REQUIRED)
include(GoogleTest)

add_library(lockstep_test_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(lockstep_test_pch PRIVATE lockstep_flags ${lockstep_fmt} GTest::gmock)
target_precompile_headers(lockstep_test_pch PRIVATE <gmock/gmock.h> ${lockstep_common_headers})
set_property(TARGET lockstep_test_pch PROPERTY LOCKSTEP_UNOPTIMIZED ON)

# One program per folder; labels: free (no LibTorch), torch, cli.
function(lockstep_test name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;FOLDERS;LINK" ${ARGN})
  set(sources ${ARG_SOURCES})
  foreach(folder ${ARG_FOLDERS})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cc)
    list(APPEND sources ${found})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -Wno-missing-field-initializers)  # what a test is about, and no more
  lockstep_batches(${name})
  if(ARG_TORCH)
    # One process for all tests of a program: each would spend half a second on loading LibTorch.
    lockstep_torch_units(${name})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS torch TIMEOUT 600 COST 100)  # begun first: one of them takes long
  else()
    set_property(TARGET ${name} PROPERTY LOCKSTEP_UNOPTIMIZED ON)
    target_precompile_headers(${name} REUSE_FROM lockstep_test_pch)
    if(LOCKSTEP_SANITIZE)
      # One process here, too: a sanitizer takes longer to begin than most of them.
      add_test(NAME ${name} COMMAND ${name})
      set_tests_properties(${name} PROPERTIES LABELS free TIMEOUT 1200)
    else()
      gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS free TIMEOUT 300)
    endif()
  endif()
endfunction()

lockstep_test(test_scenarios FOLDERS scenarios scenarios/base scenarios/json scenarios/parse scenarios/profiler
              LINK lockstep_scenario)
lockstep_test(test_bucket SOURCES tests/reducer/bucket_test.cc tests/reducer/shard_tree_test.cc LINK lockstep_bucket)
lockstep_test(test_compare FOLDERS golden LINK lockstep_compare)
lockstep_test(test_record FOLDERS sim/record LINK lockstep_record)
lockstep_test(test_fault FOLDERS sim/fault/acts LINK lockstep_fault)
lockstep_test(test_plan FOLDERS sim/plan LINK lockstep_plan)
lockstep_test(test_launch FOLDERS sim/launch LINK lockstep_launch)
lockstep_test(test_join FOLDERS sim/join LINK lockstep_join)
# The worker program without LibTorch: all real but what its tasks do.
add_executable(fake_worker tests/sim/launch/fake_worker.cc sim/worker/main/main.cc
                           sim/worker/main/worker_main.cc sim/worker/worker_process.cc)
target_link_libraries(fake_worker PRIVATE lockstep_launch)
lockstep_names_in_stacks(fake_worker)
if(TARGET test_launch)
  add_dependencies(test_launch fake_worker)
endif()
lockstep_test(test_des FOLDERS sim/des LINK lockstep_des ${LOCKSTEP_RAPIDCHECK})
lockstep_test(test_analysis FOLDERS sim/analysis LINK lockstep_judge)
lockstep_test(test_judge FOLDERS sim/judge LINK lockstep_judge)
lockstep_test(test_calibrate FOLDERS sim/calibrate LINK lockstep_calibrate)
lockstep_test(test_sweep FOLDERS sim/sweep LINK lockstep_sweep)
lockstep_test(test_report FOLDERS sim/report sim/report/trace sim/report/ci sim/report/html sim/cli sim/program LINK lockstep_program)
if(LOCKSTEP_TOOLS)
  foreach(tool campaign collective compare explain explore program soak whatif)
    lockstep_test(test_tool_${tool} FOLDERS sim/tools/${tool} LINK lockstep_tools)
  endforeach()
endif()
if(LOCKSTEP_LIBTORCH)
  lockstep_test(test_workloads TORCH FOLDERS scenarios/workloads LINK lockstep_workloads)
  lockstep_test(test_reducer TORCH FOLDERS reducer/base reducer/comm reducer/shm reducer/hierarchical reducer/kinds reducer/hooks LINK lockstep_reducer lockstep_workloads)
  lockstep_test(test_golden TORCH FOLDERS golden/torch LINK lockstep_golden lockstep_reducer)
  lockstep_test(test_gpu TORCH FOLDERS gpu LINK lockstep_worker_lib)
  lockstep_test(test_worker TORCH FOLDERS sim/worker sim/fault ${of_tools} LINK lockstep_worker_lib lockstep_judge)
endif()

# From outside: the program as a user runs it, and every shipped scenario against its expectation.
# Three programs at a time on two cores, since most of them wait for something most of the time
# (scripts/test), but for those that measure a time: they take all places.
set(lockstep_timed cli.blame cli.collective cli.emulation cli.sweep cli.whatif program.sweep
    scenario.stragglers scenario.sweeps)
function(lockstep_cli_test name)
  set(places 1)
  if(name IN_LIST lockstep_timed)
    set(places 3)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS cli PROCESSORS ${places} ${ARGN})
  if(name MATCHES "^(cli.options|cli.consumer|program.(causes|run_faults|gallery|verify)|python.ddp|scenario.equivalence)$")
    set_tests_properties(${name} PROPERTIES COST 100)  # begun first: the longest
  endif()
  if(NOT name MATCHES "^program.(verify|zygote)$")  # one process that imports torch for all ranks, not two
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT PYTHONHASHSEED=0)
  endif()
endfunction()
if(LOCKSTEP_LIBTORCH)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB programs CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/cli
       ${PROJECT_SOURCE_DIR}/tests/cli/*_test.py)
  if(NOT LOCKSTEP_TOOLS)  # those that look at tools, or at all verbs
    list(FILTER programs EXCLUDE REGEX
         "^(checkpoints|ci|collective|completion|explain|explore|html|kills|options|reference|run|simulate|whatif)_test")
  endif()
  foreach(program ${programs})
    string(REPLACE "_test.py" "" name ${program})
    add_test(NAME cli.${name} COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/cli/${program})
    lockstep_cli_test(cli.${name} TIMEOUT 1800 ENVIRONMENT LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>)
  endforeach()
  # Faults, defects and correct runs that nobody wrote down: minutes, so under a label of their own.
  set(campaigns "enumerated --enumerate --draw 150 --seed 3" "drawn --seeds 300 --seed 7"
          "stragglers --stragglers --seeds 50 --seed 5" "mutants --mutants 100 --seed 11"
          "clean --clean 200 --seed 13")
  if(NOT LOCKSTEP_TOOLS)
    set(campaigns "")
  endif()
  foreach(campaign ${campaigns})
    separate_arguments(words UNIX_COMMAND "${campaign}")
    list(POP_FRONT words name)
    add_test(NAME campaign.${name}
             COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/cli/until_decided.py
                     $<TARGET_FILE:lockstep> campaign ${words})
    set_tests_properties(campaign.${name} PROPERTIES LABELS campaign TIMEOUT 900 SKIP_RETURN_CODE 77
      ENVIRONMENT XDG_STATE_HOME=${PROJECT_BINARY_DIR}/state)
  endforeach()
  # PyTorch as a peer: needs a Python whose torch is the LibTorch that we are linked with.
  set(LOCKSTEP_PEER_PYTHON /usr/bin/python3 CACHE FILEPATH "Python with the same LibTorch")
  set(programs ddp invariant audit kernels)
  if(LOCKSTEP_TOOLS)
    list(APPEND programs checkpoints recorder)
  endif()
  foreach(program ${programs})
    add_test(NAME python.${program}
             COMMAND ${LOCKSTEP_PEER_PYTHON} -B ${PROJECT_SOURCE_DIR}/tests/python/${program}_test.py)
    lockstep_cli_test(python.${program} TIMEOUT 1800 SKIP_RETURN_CODE 77 ENVIRONMENT LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>)
  endforeach()
  if(LOCKSTEP_TOOLS)
    set(words_of_verify program_test.py)
    set(words_of_correct correct_runs.py --runs 4 --seed 2)
    foreach(name around_backward by_hand catalogue causes comm_hook conformance correct deals drill examples gallery given gpus gradients group_traces handed held interrupt items local_batch_norm
                 launcher meshes named package padding parts run_faults scenario sketches spawned sweep sync_batch_norm tap terms threads together unchanged verify zygote)
      set(words ${name}_test.py)
      if(DEFINED words_of_${name})
        set(words ${words_of_${name}})
      endif()
      add_test(NAME program.${name}
               COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/program/${words})
      lockstep_cli_test(program.${name} TIMEOUT 1800 ENVIRONMENT LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>)
      set_property(TEST program.${name} APPEND PROPERTY ENVIRONMENT LOCKSTEP_PEER_PYTHON=${LOCKSTEP_PEER_PYTHON})
    endforeach()
  endif()
  file(GLOB scenarios CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/scenarios/*/*.json)
  # A folder at a time: LibTorch is loaded once, and runs go side by side where cores are left.
  # `lockstep verify FILE` repeats one of them.
  set(folders "")
  foreach(scenario ${scenarios})
    get_filename_component(folder ${scenario} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(REMOVE_ITEM folders scenarios/explore scenarios/gpu)
  # Where a GPU is: skipped with the reason elsewhere.
  add_test(NAME gpu.scenarios COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tests/gpu/gpu_test.py)
  add_test(NAME gpu.accelerator COMMAND test_gpu)
  set_tests_properties(gpu.scenarios gpu.accelerator PROPERTIES LABELS gpu TIMEOUT 600 SKIP_RETURN_CODE 77
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] [1-9]"
    ENVIRONMENT "LOCKSTEP_PROGRAM=$<TARGET_FILE:lockstep>;LOCKSTEP_TEST_DEVICE=cuda;XDG_STATE_HOME=${PROJECT_BINARY_DIR}/state")
  set(explored ${scenarios})
  list(FILTER explored INCLUDE REGEX "^scenarios/explore/")
  if(NOT LOCKSTEP_TOOLS)
    set(explored "")
  endif()
  foreach(tested ${folders} ${explored})
    string(REGEX REPLACE "^scenarios/|\\.json$" "" name ${tested})
    set(name scenario.${name})
    set(command Python3::Interpreter -B tests/cli/until_decided.py $<TARGET_FILE:lockstep> verify)
    if(tested MATCHES "scenarios/explore")
      set(command lockstep explore --schedules 1000)
    endif()
    add_test(NAME ${name} COMMAND ${command} ${tested} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    lockstep_cli_test(${name} TIMEOUT 1800 SKIP_RETURN_CODE 77
                      ENVIRONMENT XDG_STATE_HOME=${PROJECT_BINARY_DIR}/state)
  endforeach()
endif()

# Ranks as threads under ThreadSanitizer: see scripts/races.
if(LOCKSTEP_LIBTORCH)
  add_executable(races EXCLUDE_FROM_ALL tests/races/races.cc sim/fault/race_mutants.cc
                                        sim/worker/shards_together.cc scenarios/workloads/draws.cc)
  target_link_libraries(races PRIVATE lockstep_reducer)
  lockstep_torch_units(races)
endif()
