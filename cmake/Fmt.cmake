# fmt: what its headers leave to its library costs each unit that has it for itself (fmt::fmt-header-only) up to 1.7 s of the
# compiler. Debian ships the library as a shared one alone, so that it is compiled here, once.
find_package(fmt REQUIRED)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 11)  # fmt.cc names templates of these
  add_library(lockstep_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cc)
  target_link_libraries(lockstep_fmt PRIVATE $<BUILD_INTERFACE:lockstep_flags>)  # sanitizers look at it too
  target_include_directories(lockstep_fmt SYSTEM PUBLIC
                             $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  set_target_properties(lockstep_fmt PROPERTIES EXPORT_NAME fmt UNITY_BUILD OFF)
  set_property(GLOBAL APPEND PROPERTY lockstep_libraries lockstep_fmt)
  set(lockstep_fmt lockstep_fmt)
else()
  set(lockstep_fmt fmt::fmt-header-only)
endif()
