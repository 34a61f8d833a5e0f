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
set(texts "")
foreach(schema scenario result sweep what_if collective explore compare profile machine simulate)
  set(file ${SOURCE}/${schema}_schema.json)
  if(schema STREQUAL scenario)
    set(file ${SOURCE}/schema.json)
  endif()
  embed(${file} ${schema}_schema_text text)
  string(APPEND texts "${text}")
endforeach()
file(WRITE ${OUT} "// Generated from scenarios/*schema.json\n#include \"scenarios/parse/suite.h\"\n"
                  "#include \"scenarios/parse/collective_schema.h\"\n"
                  "#include \"scenarios/parse/explore_schema.h\"\n"
                  "#include \"scenarios/parse/simulate_schema.h\"\n"
                  "#include \"scenarios/parse/compare_schema.h\"\n"
                  "namespace lockstep {\n${texts}}\n")
