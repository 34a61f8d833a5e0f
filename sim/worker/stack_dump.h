#pragma once

#include <string>

namespace lockstep {

// From here on stack_signal() makes this process write the stack of the thread that gets it (the
// main one, unless it blocks the signal) to `path`, innermost frame first, with kStackEnd as the
// last line; then it goes on. Once in a process, before other threads begin. Names are those of the
// dynamic symbol table: functions of our own have them because the worker exports them.
void dump_stack_on_signal(const std::string& path);

}  // namespace lockstep
