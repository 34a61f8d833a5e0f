#pragma once

#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// Two files that belong together, or one that has no partner (its other path is empty).
struct FilePair {
  std::string name;  // relative to the folders: "step-10/rank-0.pt"
  std::string a, b;  // paths
};

// Is there any .safetensors, .pt or .pth file in the folder or below it?
bool has_checkpoints(const std::string& folder);

// The checkpoints (.safetensors, .pt, .pth) of two folders and of those below them, by relative
// name; names that differ in nothing but the extension belong together too. In the order of their
// names, numbers in them by value: step-2 before step-10. Two files are one pair, whatever their
// names. Bad input: one file and one folder, a path that is not there, folders without checkpoints.
Expected<std::vector<FilePair>> pair_files(const std::string& a, const std::string& b);

}  // namespace lockstep
