#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// A name or sentence in one line of GitHub's Markdown, in a table or out of one: nothing of it is
// markup, HTML or a mention. Line by line where it has several.
std::string markdown_text(std::string_view text);

}  // namespace lockstep
