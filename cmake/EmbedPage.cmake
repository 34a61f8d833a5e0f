# Writes the sources of the HTML report as C++ strings.
include(${CMAKE_CURRENT_LIST_DIR}/Embed.cmake)
embed(page_style style ${SOURCE}/report.css)
embed(page_d3_license license ${SOURCE}/d3.LICENSE)
embed(page_d3 d3 ${SOURCE}/d3.v7.min.js)
embed(page_script script ${SOURCE}/tables.js ${SOURCE}/events.js ${SOURCE}/timeline.js ${SOURCE}/report.js)
file(WRITE ${OUT} "// Generated from sim/report/html\n#include \"sim/report/html/page.h\"\n"
                  "namespace lockstep {\n${style}${license}${d3}${script}}\n")
