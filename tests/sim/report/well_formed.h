#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {

// Of the XML that our writers use (no comments, CDATA and processing instructions): are all
// elements closed in order, attributes quoted, references known ones? Else where not.
inline std::string why_not_well_formed(const std::string& text) {
  std::vector<std::string> open;
  const auto at = [&](size_t place) { return " at: " + text.substr(place, 60); };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const std::string name = text.substr(i, text.find(';', i) - i + 1);
      const bool number = name.starts_with("&#") && name.size() > 3 &&
                          name.find_first_not_of("0123456789", 2) == name.size() - 1;
      if (!number && name != "&amp;" && name != "&lt;" && name != "&gt;" && name != "&quot;")
        return "unknown reference" + at(i);
    }
    if (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n') return "control" + at(i);
    if (text[i] == '>') return "a stray >" + at(i);
    if (text[i] != '<') continue;
    const size_t end = text.find('>', i);
    if (end == std::string::npos) return "no end of a tag" + at(i);
    const std::string tag = text.substr(i + 1, end - i - 1);
    if (tag.find('<') != std::string::npos) return "a stray <" + at(i);
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "odd quotes" + at(i);
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closed out of order" + at(i);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    i = end;
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

}  // namespace lockstep
