# Libraries that know nothing of LibTorch; they build and test without it.
if(LOCKSTEP_STATIC)
  include(cmake/Static.cmake)
endif()
find_package(nlohmann_json REQUIRED)
include(cmake/Fmt.cmake)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
include(cmake/LockstepCrypto.cmake)
include(cmake/LockstepXxhash.cmake)
# Headers alone, without package files everywhere.
find_path(LOCKSTEP_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(LOCKSTEP_VALIJSON_INCLUDE valijson/schema.hpp REQUIRED)
target_include_directories(lockstep_flags SYSTEM INTERFACE ${LOCKSTEP_CLI11_INCLUDE}
                                                           ${LOCKSTEP_VALIJSON_INCLUDE})

set(embedded ${PROJECT_BINARY_DIR}/scenarios/json/schema_text.cc)
set_source_files_properties(${embedded} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # its path is one build's
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUT=${embedded} -D SOURCE=${PROJECT_SOURCE_DIR}/scenarios
          -P ${PROJECT_SOURCE_DIR}/cmake/EmbedSchemas.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/scenarios/scenario_parts_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/result_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/sweep_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/what_if_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/collective_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/explore_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/program_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/explain_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/program_run_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/program_scenarios_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/program_sweep_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/compare_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/profile_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/machine_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/simulate_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/soak_schema.json
          ${PROJECT_SOURCE_DIR}/scenarios/table_schema.json
          ${PROJECT_SOURCE_DIR}/cmake/EmbedSchemas.cmake ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake)

# The HTML report's style, scripts and D3, which it carries with it.
set(embedded_page ${PROJECT_BINARY_DIR}/sim/report/html/page_text.cc)
set_source_files_properties(${embedded_page} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_custom_command(
  OUTPUT ${embedded_page}
  COMMAND ${CMAKE_COMMAND} -D OUT=${embedded_page} -D SOURCE=${PROJECT_SOURCE_DIR}/sim/report/html
          -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/sim/report/html/report.css
          ${PROJECT_SOURCE_DIR}/sim/report/html/d3.LICENSE
          ${PROJECT_SOURCE_DIR}/sim/report/html/d3.v7.min.js
          ${PROJECT_SOURCE_DIR}/sim/report/html/tables.js
          ${PROJECT_SOURCE_DIR}/sim/report/html/events.js
          ${PROJECT_SOURCE_DIR}/sim/report/html/timeline.js
          ${PROJECT_SOURCE_DIR}/sim/report/html/report.js
          ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake)

# Parsed once, as LibTorch's headers are: a fifth of the time of a unit that needs them.
set(lockstep_common_headers <algorithm> <fmt/format.h> <functional> <map> <nlohmann/json.hpp>
                            <optional> <string> <vector>)
add_library(lockstep_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(lockstep_pch PRIVATE lockstep_flags ${lockstep_fmt} nlohmann_json::nlohmann_json)
target_precompile_headers(lockstep_pch PRIVATE ${lockstep_common_headers})

# With CMAKE_UNITY_BUILD (a build from nothing takes a third of the time; one that follows a change
# takes longer) sources are compiled some at a time: names in their unnamed namespaces must differ.
function(lockstep_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 32)
  if(CMAKE_UNITY_BUILD)  # a class of one unit may have members of its unnamed namespace
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# name, folder list, libraries: one static library of every .cc in the folders but those that are EXCEPT
function(lockstep_library name)
  cmake_parse_arguments(ARG "TORCH" "" "FOLDERS;SOURCES;EXCEPT;LINK" ${ARGN})
  set(sources ${ARG_SOURCES})
  foreach(folder ${ARG_FOLDERS})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  list(REMOVE_ITEM sources ${ARG_EXCEPT} "")
  add_library(${name} STATIC ${sources})
  # Warnings and source folders are ours; who links what is installed finds headers of their own.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:lockstep_flags> ${ARG_LINK})
  target_include_directories(${name} INTERFACE $<INSTALL_INTERFACE:include/lockstep>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  string(REGEX REPLACE "^lockstep_" "" exported ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${exported})
  set_property(GLOBAL APPEND PROPERTY lockstep_libraries ${name})
  lockstep_batches(${name})
  if(NOT ARG_TORCH)
    target_precompile_headers(${name} REUSE_FROM lockstep_pch)
  endif()
endfunction()

lockstep_library(lockstep_scenario FOLDERS scenarios scenarios/base scenarios/json scenarios/parse scenarios/profiler
                 SOURCES ${embedded}
                 LINK ${lockstep_fmt} nlohmann_json::nlohmann_json lockstep::xxhash ZLIB::ZLIB)
lockstep_library(lockstep_bucket SOURCES reducer/bucket.cc reducer/probe.cc reducer/shard_tree.cc LINK lockstep_scenario)
lockstep_library(lockstep_compare
                 SOURCES golden/compare.cc golden/stream.cc golden/reduction_order.cc
                         golden/stored.cc
                 LINK lockstep_scenario)
lockstep_library(lockstep_record FOLDERS sim/record LINK lockstep_scenario)
lockstep_library(lockstep_plan FOLDERS sim/plan LINK lockstep_scenario lockstep_bucket)
lockstep_library(lockstep_fault FOLDERS sim/fault/acts LINK lockstep_record)
lockstep_library(lockstep_launch FOLDERS sim/launch LINK lockstep_plan lockstep_record)
lockstep_library(lockstep_join FOLDERS sim/join LINK lockstep_launch OpenSSL::Crypto)
lockstep_library(lockstep_des FOLDERS sim/des LINK lockstep_launch lockstep_fault Threads::Threads)
# A vector instruction for each of a million ranks: here the compiler's last per cent count.
if(NOT LOCKSTEP_SANITIZE)
  set_source_files_properties(sim/des/random.cc PROPERTIES COMPILE_OPTIONS -O3)
endif()
lockstep_library(lockstep_analysis FOLDERS sim/analysis LINK lockstep_launch)
lockstep_library(lockstep_judge FOLDERS sim/judge LINK lockstep_analysis)
lockstep_library(lockstep_calibrate FOLDERS sim/calibrate LINK lockstep_analysis lockstep_des)
lockstep_library(lockstep_sweep FOLDERS sim/sweep LINK lockstep_judge)
lockstep_library(lockstep_weights FOLDERS sim/weights LINK lockstep_compare ZLIB::ZLIB)
lockstep_library(lockstep_report FOLDERS sim/report sim/report/trace sim/report/svg sim/report/ci sim/report/html
                 SOURCES ${embedded_page} LINK OpenSSL::Crypto lockstep_judge lockstep_join lockstep_sweep lockstep_des lockstep_compare)
# What defines options: CLI11 is headers alone, and costs each batch with a source of these 5 s and 120 KB. They belong to
# the program's library, the last, which is one batch.
file(GLOB with_options CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/sim/tools/*/*verb.cc)
if(NOT LOCKSTEP_TOOLS)
  set(with_options "")
endif()
foreach(name analyze shared_options simulate sweep worker)
  list(APPEND with_options ${PROJECT_SOURCE_DIR}/sim/cli/${name}.cc)
endforeach()
lockstep_library(lockstep_cli FOLDERS sim/cli EXCEPT ${with_options} LINK lockstep_report lockstep_calibrate lockstep_weights)
# Verbs that the core does without. What the worker needs of them too are libraries of their own.
set(tools "")
if(LOCKSTEP_TOOLS)
  set(tools lockstep_tools)
  lockstep_library(lockstep_collective SOURCES sim/tools/collective/spec.cc sim/tools/collective/ranks.cc
                   LINK lockstep_launch)
  lockstep_library(lockstep_explore SOURCES sim/tools/explore/scheduler.cc sim/tools/explore/shrink.cc
                   sim/tools/explore/result.cc LINK lockstep_plan Threads::Threads)
  lockstep_library(lockstep_tools FOLDERS sim/tools/calibrate sim/tools/campaign sim/tools/compare sim/tools/explain sim/tools/program
                   sim/tools/soak sim/tools/whatif
                   SOURCES sim/tools/collective/report.cc sim/tools/explore/report.cc EXCEPT ${with_options}
                   LINK lockstep_cli lockstep_collective lockstep_explore)
endif()
lockstep_library(lockstep_program FOLDERS sim/program SOURCES ${with_options} LINK lockstep_cli ${tools})
if(LOCKSTEP_TOOLS)
  target_compile_definitions(lockstep_program PRIVATE LOCKSTEP_TOOLS)
endif()

# What reads files, plans, starts processes, judges and reports waits for others mostly: a quarter of its time to compile
# is worth more than what -O2 would gain. Not so what compares tensors, or simulates.
foreach(target lockstep_scenario lockstep_analysis lockstep_plan lockstep_launch lockstep_join lockstep_judge
               lockstep_sweep lockstep_report lockstep_cli lockstep_collective lockstep_explore lockstep_tools lockstep_program)
  if(TARGET ${target} AND NOT LOCKSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endforeach()

# Under sanitizers clang takes 46 s for 16 sources of these at -O1 and 17 s at -O0, of which a precompiled header of -O1
# is none. Tests of what computes would lose more than that.
option(LOCKSTEP_FEW_EXECUTIONS "With LOCKSTEP_FUZZ: tools and reports at -O0, for tests rather than for a million executions" OFF)
if(LOCKSTEP_FUZZ AND LOCKSTEP_FEW_EXECUTIONS)
  foreach(target lockstep_report lockstep_cli lockstep_tools lockstep_program)
    set_target_properties(${target} PROPERTIES LOCKSTEP_QUICKLY_BUILT ON DISABLE_PRECOMPILE_HEADERS ON)
  endforeach()
endif()

add_executable(lockstep sim/program/main.cc)
target_link_libraries(lockstep PRIVATE lockstep_program)

# The commit stands in every report; a small header, written anew at each build if it changed.
add_custom_target(lockstep_commit
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
          -D OUT=${PROJECT_BINARY_DIR}/lockstep_commit.h -P ${PROJECT_SOURCE_DIR}/cmake/Commit.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/lockstep_commit.h)
add_dependencies(lockstep_report lockstep_commit)
