#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Text of --help in a terminal narrower than its lines. Lines end between words; what follows
// stands below the beginning of the description ("  --json FILE   Write ..."), or, where that
// leaves too little room, the description begins on a line of its own. Commands below "Examples"
// stay whole, so that they can be copied, and so does whatever has no blank.
std::string folded_help(std::string_view text, size_t columns);

}  // namespace lockstep
