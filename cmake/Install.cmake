# What `cmake --install` leaves: bin/ (program and worker beside each other), share/lockstep/ (scenarios
# with the stored results that they name, by the same relative paths), docs, man page, completions.
include(GNUInstallDirs)

install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET lockstep-worker)
  install(TARGETS lockstep-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(share ${CMAKE_INSTALL_DATADIR}/lockstep)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios DESTINATION ${share}
        FILES_MATCHING PATTERN "*.json" PATTERN "*.checkpoint*" PATTERN "*.profile"
        PATTERN base EXCLUDE PATTERN files EXCLUDE PATTERN parse EXCLUDE PATTERN workloads EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/golden/data DESTINATION ${share}/golden)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

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
