# After linking: PROGRAM neither takes names of Gloo from elsewhere nor gives any to others; else the
# Gloo inside LibTorch and ours, of another version, would be mixed without a word.
execute_process(COMMAND ${NM} -D ${PROGRAM} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]* _Z[A-Z]*N?[A-Z]*4gloo[^\n]*" seen "${names}")
if(seen)
  list(LENGTH seen count)
  list(SUBLIST seen 0 5 first)
  string(JOIN "\n" first ${first})
  message(FATAL_ERROR "${PROGRAM} shares ${count} names of Gloo with LibTorch, which has another Gloo "
                      "inside, such as\n${first}")
endif()
