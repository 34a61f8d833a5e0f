# What `cmake --install` leaves: bin/ (program and worker beside each other), share/lockstep/ (scenarios
# with the stored results that they name, by the same relative paths; the recorder for Python
# trainers), docs, man page, completions; and for programs of one's own libraries, headers and a
# package for find_package(lockstep).
include(GNUInstallDirs)
# A LibTorch that is not the system's is found where it lies.
if(LOCKSTEP_TORCH)
  get_filename_component(torch_lib ${LOCKSTEP_TORCH_CPU} DIRECTORY)
  foreach(target lockstep-worker lockstep-nccl)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES INSTALL_RPATH ${torch_lib})
    endif()
  endforeach()
endif()

install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Of the wheel (pyproject.toml) nothing else but python/lockstep, in which it lies.
install(TARGETS lockstep RUNTIME DESTINATION lockstep/bin COMPONENT wheel EXCLUDE_FROM_ALL)
if(TARGET lockstep-worker)
  install(TARGETS lockstep-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET lockstep-nccl)
  install(TARGETS lockstep-nccl LIBRARY DESTINATION lib/lockstep)
endif()

set(share ${CMAKE_INSTALL_DATADIR}/lockstep)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios DESTINATION ${share}
        FILES_MATCHING PATTERN "*.json" PATTERN "*.checkpoint*" PATTERN "*.profile"
        PATTERN base EXCLUDE PATTERN json EXCLUDE PATTERN parse EXCLUDE PATTERN workloads EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/golden/data DESTINATION ${share}/golden)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/lockstep_record.py DESTINATION ${share})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/lockstep DESTINATION ${share}/python PATTERN __pycache__ EXCLUDE)
# Pages lie as in the repository, with the files of it that they link to, so that links lead somewhere.
set(pages README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md)
install(FILES ${pages} LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT docs)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT docs PATTERN site EXCLUDE)
file(GLOB_RECURSE more CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/docs/*.md)
set(linked "")
foreach(page ${pages} ${more})
  get_filename_component(folder ${page} DIRECTORY)
  file(READ ${page} text)
  string(REGEX MATCHALL "\\([a-zA-Z0-9_./-]+" targets "${text}")
  foreach(target ${targets})
    string(SUBSTRING ${target} 1 -1 target)
    cmake_path(SET target NORMALIZE "./${folder}/${target}")
    if(EXISTS ${PROJECT_SOURCE_DIR}/${target} AND NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${target} AND NOT target MATCHES "^docs/")
      list(APPEND linked ${target})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES linked)
foreach(file ${linked})
  get_filename_component(folder ${file} DIRECTORY)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} COMPONENT docs)
endforeach()

# Made by the program from its own option parser.
set(made ${PROJECT_BINARY_DIR}/made)
file(MAKE_DIRECTORY ${made})
foreach(words "lockstep.1 man" "lockstep.bash completion bash" "_lockstep completion zsh"
        "lockstep.fish completion fish")
  separate_arguments(words UNIX_COMMAND "${words}")
  list(POP_FRONT words file)
  add_custom_command(OUTPUT ${made}/${file} COMMAND lockstep ${words} > ${made}/${file}
                     DEPENDS lockstep VERBATIM)
  list(APPEND made_files ${made}/${file})
endforeach()
add_custom_target(lockstep_made ALL DEPENDS ${made_files})
install(FILES ${made}/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${made}/lockstep.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME lockstep)
install(FILES ${made}/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${made}/lockstep.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# For programs of one's own: tests/consumer is one.
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY lockstep_libraries)
install(TARGETS ${libraries} EXPORT lockstep-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-config.cmake.in
  ${PROJECT_BINARY_DIR}/lockstep-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake
              ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LockstepTorch.cmake
              ${PROJECT_SOURCE_DIR}/cmake/LockstepXxhash.cmake
              ${PROJECT_SOURCE_DIR}/cmake/hide_gloo.map DESTINATION ${package})
foreach(folder reducer golden scenarios sim)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(FILTER headers EXCLUDE REGEX "/stub/")  # in LibTorch's place, for our own units alone
  foreach(header ${headers})
    get_filename_component(place ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${place})
  endforeach()
endforeach()

# cpack: a Debian package of all that.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the lockstep authors <lockstep@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
if(NOT LOCKSTEP_TORCH)  # whose libraries are in no package
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++, cmake, libfmt-dev, libgloo-dev, libssl-dev, libtorch-dev, libxxhash-dev, nlohmann-json3-dev, zlib1g-dev")
set(CPACK_STRIP_FILES ON)
include(CPack)
