#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Below LibTorch some do not come back where memory is refused: OpenBLAS asks for its buffer again
// and again, pthreadpool waits for threads that never began. So where this process has a limit of
// memory (ulimit -v, ulimit -d), that is asked for beforehand.

// Empty: there is no limit, or there is room for a process in which so many threads compute at a
// time. Else the sentence for the user.
std::string why_no_room(int64_t computing);

// Before anything is computed. Throws std::runtime_error with that sentence.
void take_room(int64_t computing);

}  // namespace lockstep
