#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Standard output of a program that must end within `timeout` with exit code 0; else nothing, and
// why. The program is killed when the time is up.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout, std::string* why);

// Where a child process reads `text`: a file without a name that it inherits. Nothing, and why.
std::optional<std::string> hand_over(const std::string& text, std::string* why);

// From now on find_worker() gives this very program, which is lockstep and its worker in one and
// was called by the word `name`.
void be_own_worker(const std::string& name);
// A command line that begins with "lockstep", as this program is called.
std::string as_called(const std::string& command);

}  // namespace lockstep
