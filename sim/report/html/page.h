#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What --html writes, the same page for every verb: one file that opens from a disk and asks nobody
// for anything. The browser draws it from what the verb has anyway (report.js, tables.js,
// events.js, timeline.js, with D3).
struct HtmlPage {
  std::string verb;                         // "verify"
  std::string text;                         // that the verb prints; colours are left out
  std::string result;                       // that --json writes, unchanged
  std::vector<std::string> timelines = {};  // html_timeline(), one a run that has events
  int exit_code = 0;
  std::string command = {};  // that made all this
};
std::string html_page(const HtmlPage& page);

// JSON that can stand in a <script> element: the same document, with characters that could end the
// element, or a line of a script, as \u escapes.
std::string json_in_script(std::string_view json);

// Text without the colours of a terminal.
std::string without_colors(std::string_view text);

// "'sha256-...'", by which a Content-Security-Policy lets a script or a style of the page through.
std::string csp_hash(std::string_view text);

// Sources that the build embeds (cmake/EmbedPage.cmake).
const char* page_style();
const char* page_d3_license();
const char* page_d3();
const char* page_script();

}  // namespace lockstep
