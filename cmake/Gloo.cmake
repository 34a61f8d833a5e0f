# Which Gloo: never two versions that see each other. A LibTorch that loads the shared one gets the
# shared one; one that has Gloo inside gets a Gloo of ours, from source, whose names nobody else sees
# (target lockstep::gloo): named before torch_cpu, whose own are exported, or the linker takes those.
set(LOCKSTEP_GLOO "" CACHE STRING
    "system, or a folder with Gloo's source; empty: system, where LibTorch loads that one")

set(source_wanted "pass -DLOCKSTEP_GLOO=FOLDER with Gloo's source (scripts/gloo_source FOLDER fetches Debian's)")
if(LOCKSTEP_TORCH_LOADS_GLOO)
  if(LOCKSTEP_GLOO AND NOT LOCKSTEP_GLOO STREQUAL "system")
    message(FATAL_ERROR "LOCKSTEP_GLOO is ${LOCKSTEP_GLOO}, but ${LOCKSTEP_TORCH_CPU} loads the shared "
                        "libgloo.so: two versions would meet in one process; leave it empty")
  endif()
  return()
endif()
if(LOCKSTEP_GLOO STREQUAL "system")
  message(FATAL_ERROR "LOCKSTEP_GLOO is system, but ${LOCKSTEP_TORCH_CPU} has a Gloo inside: two "
                      "versions would meet in one process; ${source_wanted}")
elseif(NOT LOCKSTEP_GLOO)
  message(FATAL_ERROR "${LOCKSTEP_TORCH_CPU} has a Gloo inside, without headers: ${source_wanted}")
endif()
get_filename_component(gloo_root "${LOCKSTEP_GLOO}" ABSOLUTE)
if(NOT EXISTS ${gloo_root}/gloo/config.h.in)
  message(FATAL_ERROR "LOCKSTEP_GLOO: there is no gloo/config.h.in in ${gloo_root}; ${source_wanted}")
endif()

file(READ ${gloo_root}/CMakeLists.txt gloo_lists)
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "GLOO_VERSION_${part} ([0-9]+)" unused "${gloo_lists}")
  set(GLOO_VERSION_${part} ${CMAKE_MATCH_1})
endforeach()
set(GLOO_HAVE_TRANSPORT_TCP 1)
configure_file(${gloo_root}/gloo/config.h.in ${PROJECT_BINARY_DIR}/own_gloo/gloo/config.h)
file(GLOB gloo_sources ${gloo_root}/gloo/*.cc ${gloo_root}/gloo/common/*.cc
     ${gloo_root}/gloo/rendezvous/*.cc ${gloo_root}/gloo/transport/*.cc
     ${gloo_root}/gloo/transport/tcp/*.cc)
list(FILTER gloo_sources EXCLUDE REGEX "/(cuda_[^/]*|win|redis_store)\\.cc$")
add_library(lockstep_gloo STATIC ${gloo_sources})
target_include_directories(lockstep_gloo SYSTEM
  PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/own_gloo> $<BUILD_INTERFACE:${gloo_root}>)
target_compile_definitions(lockstep_gloo INTERFACE LOCKSTEP_OWN_GLOO)
target_compile_options(lockstep_gloo PRIVATE -w -fPIC -fvisibility=hidden)
include(GNUInstallDirs)
set(gloo_map ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep/hide_gloo.map)
target_link_options(lockstep_gloo INTERFACE
  $<BUILD_INTERFACE:LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/hide_gloo.map>
  $<INSTALL_INTERFACE:LINKER:--version-script=$<INSTALL_PREFIX>/${gloo_map}>)
target_link_libraries(lockstep_gloo PUBLIC Threads::Threads INTERFACE ${LOCKSTEP_TORCH_CPU})
set_target_properties(lockstep_gloo PROPERTIES EXPORT_NAME gloo UNITY_BUILD OFF)
set_property(GLOBAL APPEND PROPERTY lockstep_libraries lockstep_gloo)
add_library(lockstep::gloo ALIAS lockstep_gloo)
