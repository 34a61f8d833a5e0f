#pragma once

#include <string_view>

namespace lockstep {

// What an exception's last line ("Type: message") says of who failed.
enum class ExceptionOrigin {
  own,            // the program, its data, its device or its host
  communication,  // somebody else was gone or late
  stop,           // a signal or the launcher ended it
  interrupt,      // somebody ended the job, with Ctrl-C
  launcher,       // raised by a launcher about its processes
  unclear,
};

// `in_distributed`: the innermost call is one of torch.distributed. Own is only what speaks of
// nothing that peers could have caused.
ExceptionOrigin origin_of_exception(std::string_view line, bool in_distributed);

// Is `line` the last line of a traceback?
bool is_exception(std::string_view line);

}  // namespace lockstep
