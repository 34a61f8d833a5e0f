#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "sim/program/program.h"

namespace lockstep {

using Words = std::vector<std::string>;

struct Answer {
  int code;
  std::string out, err;
};

// The program on these words, within this process.
inline Answer invoke(Words words) {
  words.insert(words.begin(), "lockstep");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_cli(static_cast<int>(argv.size()), argv.data());
  std::string out = testing::internal::GetCapturedStdout();
  return {code, std::move(out), testing::internal::GetCapturedStderr()};
}

}  // namespace lockstep
