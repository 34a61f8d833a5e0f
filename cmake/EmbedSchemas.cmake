# Writes the shipped schemas as C++ strings.
include(${CMAKE_CURRENT_LIST_DIR}/Embed.cmake)
set(texts "")
foreach(schema scenario_parts result sweep what_if collective explore compare profile machine simulate program
               program_run program_scenarios program_sweep explain soak table)
  embed(${schema}_schema_text text ${SOURCE}/${schema}_schema.json)
  string(APPEND texts "${text}")
endforeach()
file(WRITE ${OUT} "// Generated from scenarios/*_schema.json\n#include \"scenarios/json/schema.h\"\n"
                  "namespace lockstep {\n${texts}}\n")
