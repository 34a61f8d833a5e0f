#include "scenarios/base/text.h"
#include "sim/report/text_style.h"
#include "tests/fuzz/fuzz.h"

// The filter in front of all that is printed.
namespace {

// Of valid UTF-8: C0 but for newline and tab, DEL, C1, bidirectional and zero-width characters.
bool steers(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = lockstep::utf8_length(text.substr(at));
    if (length == 0) return true;
    const std::string_view letter = text.substr(at, length);
    const auto first = static_cast<unsigned char>(letter[0]);
    if ((length == 1 && first < 0x20) || first == 0x7f) return true;
    if (length == 2 && first == 0xc2 && static_cast<unsigned char>(letter[1]) < 0xa0) return true;
    if (letter >= "\xe2\x80\x8b" && letter <= "\xe2\x80\x8f") return true;
    if (letter >= "\xe2\x80\xa8" && letter <= "\xe2\x80\xae") return true;
    if (letter >= "\xe2\x81\xa6" && letter <= "\xe2\x81\xa9") return true;
    at += length;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const std::string_view text = fuzz::text_of(data, size);
  const std::string line = printable(text);
  fuzz::promised(!steers(line), "nothing steers a terminal");
  fuzz::promised(printable(line) == line, "what was filtered once is as it stays");
  const std::string lines = printable_lines(text);
  fuzz::promised(printable_lines(lines) == lines, "what was filtered once is as it stays");
  fuzz::promised(markdown_text(text).find('<') == std::string::npos, "nothing is HTML");
  fuzz::promised(lines.find("\n::") == lines.npos && !lines.starts_with("::") &&
                     lines.find("\n##[") == lines.npos && !lines.starts_with("##["),
                 "no line gives a command to a CI system");
  return 0;
}
