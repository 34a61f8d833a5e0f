# Writes the shipped schemas as C++ raw strings, in pieces below the compiler's limit.
function(embed file function out)
  file(READ ${file} text)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND pieces "R\"lockstep(${piece})lockstep\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  set(${out} "const char* ${function}() {\n  return ${pieces};\n}\n" PARENT_SCOPE)
endfunction()
embed(${SOURCE}/schema.json scenario_schema_text scenario)
embed(${SOURCE}/result_schema.json result_schema_text result)
embed(${SOURCE}/sweep_schema.json sweep_schema_text sweep)
embed(${SOURCE}/what_if_schema.json what_if_schema_text what_if)
embed(${SOURCE}/profile_schema.json profile_schema_text profile)
embed(${SOURCE}/machine_schema.json machine_schema_text machine)
file(WRITE ${OUT} "// Generated from scenarios/*schema.json\n#include \"scenarios/parse/suite.h\"\n"
                  "namespace lockstep {
${scenario}${result}${sweep}${what_if}${profile}${machine}}
")
